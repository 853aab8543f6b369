#include "fleet/likeness.hpp"

#include <fmt/format.h>

namespace fairlead::fleet {

void Likeness::fill(const Likeness& other) {
  if (model_id.empty()) {
    model_id = other.model_id;
  }
  if (kv_block_size == 0) {
    kv_block_size = other.kv_block_size;
  }
}

Likeness likeness_of(const Member& member) {
  return {.maker = std::string(engine::maker_name(member.card.backend)),
          .model_id = member.info->model_id,
          .kv_block_size = member.info->kv_block_size != 0 ? member.info->kv_block_size
                                                           : member.card.kv_block_size};
}

std::string difference(const Likeness& incumbent, const Likeness& other) {
  if (incumbent.maker != other.maker) {
    return fmt::format("engine of {} instead of {}", other.maker, incumbent.maker);
  }
  const std::string& model_id = incumbent.model_id;
  if (!model_id.empty() && !other.model_id.empty() && model_id != other.model_id) {
    return fmt::format("model id `{}` instead of `{}`", other.model_id, model_id);
  }
  const std::uint32_t block = incumbent.kv_block_size;
  if (block != 0 && other.kv_block_size != 0 && block != other.kv_block_size) {
    return fmt::format("KV block size {} instead of {}", other.kv_block_size, block);
  }
  return {};
}

}  // namespace fairlead::fleet
