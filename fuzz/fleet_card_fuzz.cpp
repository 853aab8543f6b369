// links: fl_fleet

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "fleet/card.hpp"

// Arbitrary cards: what is accepted has an identity and is either a worker with an address or an
// adapter with a suffix.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<fleet::Card> card = fleet::parse_card(text, "worker");
  if (!card) {
    if (card.error().code != ErrorCode::InvalidRequest || card.error().message.empty()) {
      std::abort();
    }
    return 0;
  }
  if (card->instance_id.empty() || card->is_adapter() == card->model_suffix.empty() ||
      card->is_adapter() != (card->endpoint.port == 0) || card->checksum().size() != 32 ||
      !card->key().starts_with(card->base_key())) {
    std::abort();
  }
  return 0;
}
