// links: fl_kv
//
// From an engine's message to comparable blocks on one core: decoding alone, and decoding with
// hashing and normalising. Batches have vLLM's map layout with 32 or 1 blocks per event and tokens
// that are either uniform over a vocabulary of 128,000 or mostly low ones, as in text: 18 % below
// 128, 3 % below 256, 63 % below 65,536.

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kv/event_decoder.hpp"
#include "kv/event_normalizer.hpp"

namespace {

namespace kv = fairlead::kv;

constexpr std::uint32_t kVocabulary = 128'000;
constexpr std::uint64_t kBatchBlocks = 1024;
constexpr std::size_t kBatches = 64;

void put(std::string& out, std::uint64_t value, unsigned width) {
  for (unsigned i = width; i > 0; --i) {
    out.push_back(static_cast<char>(value >> (8 * (i - 1))));
  }
}

void put_integer(std::string& out, std::uint64_t value) {
  if (value < 128) {
    put(out, value, 1);
  } else {
    const unsigned exponent = value < 256 ? 0 : value < 65536 ? 1 : value <= UINT32_MAX ? 2 : 3;
    put(out, 0xcc + exponent, 1);
    put(out, value, 1U << exponent);
  }
}

void put_string(std::string& out, std::string_view text) {
  put(out, 0xa0 + text.size(), 1);
  out += text;
}

void put_array(std::string& out, std::uint64_t count) {
  put(out, 0xdc, 1);
  put(out, count, 2);
}

std::uint32_t token(std::mt19937_64& random, bool uniform) {
  const double at = std::uniform_real_distribution<>(0, 1)(random);
  return static_cast<std::uint32_t>(kVocabulary * (uniform ? at : std::pow(at, 4)));
}

/// `kBatchBlocks` blocks in events of `per_event`, as vLLM 0.33 lays them out.
std::string make_batch(std::mt19937_64& random, std::uint64_t block_size, std::uint64_t per_event,
                       bool uniform) {
  std::string out = "\x93\xcb\x41\xda\xc3\x20\x9f\xd9\x7d\x9e";
  put_array(out, kBatchBlocks / per_event);
  for (std::uint64_t event = 0; event < kBatchBlocks / per_event; ++event) {
    put(out, 0x8b, 1);
    put_string(out, "type");
    put_string(out, "BlockStored");
    put_string(out, "block_hashes");
    put_array(out, per_event);
    for (std::uint64_t i = 0; i < per_event; ++i) {
      put_integer(out, random());
    }
    put_string(out, "parent_block_hash");
    put_integer(out, random());
    put_string(out, "token_ids");
    put_array(out, per_event * block_size);
    for (std::uint64_t i = 0; i < per_event * block_size; ++i) {
      put_integer(out, token(random, uniform));
    }
    put_string(out, "block_size");
    put_integer(out, block_size);
    for (const std::string_view key : {"lora_id", "lora_name"}) {
      put_string(out, key);
      put(out, 0xc0, 1);
    }
    put_string(out, "medium");
    put_string(out, "GPU");
    put_string(out, "extra_keys");
    put_array(out, per_event);
    out.append(per_event, '\xc0');
    put_string(out, "group_idx");
    put(out, 0, 1);
    put_string(out, "kv_cache_spec_kind");
    put_string(out, "full_attention");
  }
  put(out, 0, 1);
  return out;
}

/// Different batches to go through in turn: of a single one, branch prediction learns the tokens.
std::vector<std::string> make_batches(const benchmark::State& state) {
  std::mt19937_64 random(11);
  std::vector<std::string> out;
  for (std::size_t i = 0; i < kBatches; ++i) {
    out.push_back(make_batch(random, static_cast<std::uint64_t>(state.range(0)),
                             static_cast<std::uint64_t>(state.range(1)), state.range(2) != 0));
  }
  return out;
}

struct CountingSink : kv::EventSink {
  void stored(kv::Tier /*tier*/, std::optional<kv::EngineHash> /*parent*/,
              std::span<const kv::StoredBlock> stored_blocks) override {
    for (const kv::StoredBlock& block : stored_blocks) {
      sum += block.local;
    }
    blocks += stored_blocks.size();
  }
  void removed(kv::Tier /*tier*/, std::span<const kv::EngineHash> /*blocks*/) override {}
  void cleared() override {}

  std::uint64_t sum = 0;
  std::uint64_t blocks = 0;
};

void decode(benchmark::State& state) {
  const std::vector<std::string> payloads = make_batches(state);
  std::size_t next = 0;
  kv::EventBatch batch;
  for ([[maybe_unused]] auto _ : state) {
    if (!kv::decode_batch(payloads[next++ % kBatches], batch)) {
      state.SkipWithError("not decoded");
      break;
    }
    benchmark::DoNotOptimize(batch.tokens.data());
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations() * kBatchBlocks));
}

void decode_and_normalize(benchmark::State& state) {
  const std::vector<std::string> payloads = make_batches(state);
  std::size_t next = 0;
  kv::EventBatch batch;
  kv::EventNormalizer normalizer({.block_size = static_cast<std::uint32_t>(state.range(0))});
  CountingSink sink;
  for ([[maybe_unused]] auto _ : state) {
    if (!kv::decode_batch(payloads[next++ % kBatches], batch)) {
      state.SkipWithError("not decoded");
      break;
    }
    normalizer.apply(batch, sink);
  }
  benchmark::DoNotOptimize(sink.sum);
  if (sink.blocks != state.iterations() * kBatchBlocks) {
    state.SkipWithError("blocks were dropped");
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations() * kBatchBlocks));
}

void shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"block_size", "blocks_per_event", "uniform"});
  for (const std::int64_t block_size : {16, 64}) {
    for (const std::int64_t per_event : {32, 1}) {
      for (const std::int64_t uniform : {0, 1}) {
        bench->Args({block_size, per_event, uniform});
      }
    }
  }
}

BENCHMARK(decode)->Apply(shapes);
BENCHMARK(decode_and_normalize)->Apply(shapes);

}  // namespace
