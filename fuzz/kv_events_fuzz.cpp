// links: fl_kv
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>

#include "base/log.hpp"
#include "kv/event_decoder.hpp"
#include "kv/event_normalizer.hpp"
#include "kv/msgpack_reader.hpp"

// A payload may say anything: what is handed on must be well-formed, memory bounded, and what is
// decoded a complete document. The first byte of an input chooses the options.

namespace {

namespace kv = fairlead::kv;

constexpr std::size_t kMaxSalted = 8;

void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

struct CheckingSink : kv::EventSink {
  explicit CheckingSink(const kv::EventBatch& decoded) : batch(decoded) {}

  void stored(kv::Tier tier, std::optional<kv::EngineHash> parent,
              std::span<const kv::StoredBlock> blocks) override {
    require(tier <= kv::Tier::External && !blocks.empty() && blocks.size() <= batch.tokens.size());
    for (const kv::StoredBlock& block : blocks) {
      require(block.engine != parent);
    }
    total += blocks.size();
  }
  void removed(kv::Tier tier, std::span<const kv::EngineHash> blocks) override {
    require(tier <= kv::Tier::External && !blocks.empty() && blocks.size() <= batch.hashes.size());
    total += blocks.size();
  }
  void cleared() override { require(!batch.events.empty()); }

  const kv::EventBatch& batch;
  std::uint64_t total = 0;
};

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  fairlead::log::start(fairlead::log::Level::Off);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) {
    return 0;
  }
  const std::string_view payload(reinterpret_cast<const char*>(data + 1), size - 1);
  kv::EventBatch batch;
  kv::msgpack::Reader whole(payload);
  const bool complete = whole.skip() && whole.at_end();
  if (!kv::decode_batch(payload, batch)) {
    return 0;
  }
  require(complete);
  const unsigned choice = data[0];
  kv::NormalizerOptions options{.block_size = 1U << (choice & 7U), .max_salted_blocks = kMaxSalted};
  if ((choice & 8U) != 0) {
    options.image_token = choice >> 4U;
  }
  kv::EventNormalizer normalizer(options);
  CheckingSink sink(batch);
  // Twice, so that the second meets what the first taught.
  for (int i = 0; i < 2; ++i) {
    normalizer.apply(batch, sink);
    require(normalizer.salted_blocks() <= kMaxSalted);
  }
  require(sink.total == normalizer.blocks_stored() + normalizer.blocks_removed());
  return 0;
}
