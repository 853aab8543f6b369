// links: fl_base fl_observe fl_kv
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "kv/dump.hpp"

// Dumps of any bytes, in pieces of any size: what is held is bounded, and what was read is read
// equal when it is written again.

namespace {

using namespace fairlead::kv;

constexpr std::size_t kMaxBytes = 1U << 16U;

void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  const std::size_t piece = data[0] + std::size_t{1};
  DumpReader reader(kMaxBytes);
  while (!text.empty()) {
    if (!reader.feed(text.substr(0, piece))) {
      require(!reader.take());
      return 0;
    }
    text.remove_prefix(std::min(piece, text.size()));
  }
  const auto targets = reader.take();
  if (!targets) {
    return 0;
  }
  std::string written;
  append_dump_start(written);
  std::size_t blocks = 0;
  for (const DumpedTarget& target : *targets) {
    append_dump_target(written, target);
    append_dump_blocks(written, target.blocks);
    blocks += target.blocks.size();
  }
  require(blocks * sizeof(HeldBlock) <= kMaxBytes);
  append_dump_end(written, targets->size(), blocks);
  DumpReader again(std::size_t{1} << 24U);
  require(again.feed(written).has_value());
  const auto back = again.take();
  require(back && back->size() == targets->size());
  for (std::size_t i = 0; i < back->size(); ++i) {
    const DumpedTarget& a = (*targets)[i];
    const DumpedTarget& b = (*back)[i];
    require(a.blocks == b.blocks && a.worker_id == b.worker_id && a.model == b.model);
    require(a.checkpoint.has_value() == b.checkpoint.has_value());
    require(!a.checkpoint || (a.checkpoint->point == b.checkpoint->point &&
                              a.checkpoint->memory == b.checkpoint->memory));
  }
  return 0;
}
