#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "kv/event_decoder.hpp"
#include "kv/event_normalizer.hpp"
#include "kv/fixtures.hpp"
#include "kv/recording_sink.hpp"

// Batches recorded from real engines (tests/fixtures/captures/kv-events), each with what Python's
// msgpack reads in it. Expectations are built from that reading alone.

namespace fairlead::kv {
namespace {

using testing::from_hex;
using testing::RecordingSink;

struct Recording {
  std::string file;
  std::uint32_t block_size;
  std::size_t batches;
};

std::ostream& operator<<(std::ostream& out, const Recording& recording) {
  return out << recording.file;
}

std::uint64_t bits(const json::Value& value) {
  if (value.as_int()) {
    return static_cast<std::uint64_t>(*value.as_int());
  }
  const auto* big = std::get_if<json::BigInt>(&value.storage());
  EXPECT_TRUE(big);
  return big ? std::stoull(big->digits) : 0;
}

std::string text(const json::Value& event, std::string_view key) {
  const json::Value* value = event.find(key);
  return value && value->as_string() ? *value->as_string() : "";
}

template <class T = std::uint64_t>
std::vector<T> integers(const json::Value& event, std::string_view key) {
  std::vector<T> out;
  const json::Value* value = event.find(key);
  if (value && value->as_array()) {
    for (const json::Value& element : *value->as_array()) {
      out.push_back(static_cast<T>(bits(element)));
    }
  }
  return out;
}

class CapturedEvents : public ::testing::TestWithParam<Recording> {
 protected:
  struct Batch {
    std::string name;
    std::string payload;
    json::Value decoded;
  };

  static std::vector<Batch> batches() {
    std::vector<Batch> out;
    for (const std::string& line :
         testing::fixture_lines("captures/kv-events/" + GetParam().file + ".jsonl")) {
      const Result<json::Value> document = json::parse(line);
      EXPECT_TRUE(document);
      out.push_back({text(*document, "name"), from_hex(text(*document, "payload_hex")),
                     *document->find("decoded")});
    }
    EXPECT_EQ(out.size(), GetParam().batches);
    return out;
  }
};

TEST_P(CapturedEvents, DecodeToWhatPythonReads) {
  EventBatch decoded;
  for (const Batch& batch : batches()) {
    SCOPED_TRACE(batch.name);
    const Result<> result = decode_batch(batch.payload, decoded);
    ASSERT_TRUE(result) << result.error().message;
    const json::Array& expected = *batch.decoded.as_array();
    EXPECT_EQ(decoded.timestamp, *expected.at(0).as_double());
    EXPECT_EQ(decoded.rank, bits(expected.at(2)));
    EXPECT_EQ(decoded.ignored, 0U);
    const json::Array& events = *expected.at(1).as_array();
    ASSERT_EQ(decoded.events.size(), events.size());
    for (std::size_t i = 0; i < events.size(); ++i) {
      const Event& event = decoded.events[i];
      const std::map<std::string, EventKind> kinds{{"BlockStored", EventKind::Stored},
                                                   {"BlockRemoved", EventKind::Removed},
                                                   {"AllBlocksCleared", EventKind::Cleared}};
      EXPECT_EQ(event.kind, kinds.at(text(events[i], "type")));
      EXPECT_THAT(decoded.hashes_of(event),
                  ::testing::ElementsAreArray(integers(events[i], "block_hashes")));
      EXPECT_THAT(decoded.tokens_of(event),
                  ::testing::ElementsAreArray(integers<std::uint32_t>(events[i], "token_ids")));
      const json::Value* parent = events[i].find("parent_block_hash");
      EXPECT_EQ(event.parent.has_value(), parent && !parent->is_null());
      if (event.parent) {
        EXPECT_EQ(*event.parent, bits(*parent));
      }
      const json::Value* size = events[i].find("block_size");
      EXPECT_EQ(event.block_size, size ? bits(*size) : 0);
      const json::Value* group = events[i].find("group_idx");
      EXPECT_EQ(event.group.has_value(), group != nullptr);
      EXPECT_EQ(event.group.value_or(0), group ? *group->as_int() : 0);
      EXPECT_EQ(event.medium, text(events[i], "medium"));
      EXPECT_EQ(event.lora_name, text(events[i], "lora_name"));
      EXPECT_EQ(event.cache_salt, text(events[i], "cache_salt"));
      EXPECT_EQ(event.spec_kind, text(events[i], "kv_cache_spec_kind"));
      EXPECT_FALSE(event.bigram);
      std::vector<std::pair<std::uint32_t, std::string>> keys;
      if (const json::Value* extra = events[i].find("extra_keys")) {
        for (std::uint32_t block = 0; block < extra->as_array()->size(); ++block) {
          const json::Value& list = (*extra->as_array())[block];
          for (std::size_t k = 0; list.as_array() && k < list.as_array()->size(); ++k) {
            keys.emplace_back(block, *(*list.as_array())[k].as_string());
          }
        }
      }
      std::vector<std::pair<std::uint32_t, std::string>> found;
      for (const ExtraKey& key : decoded.extra_keys_of(event)) {
        EXPECT_EQ(key.kind, ExtraKeyKind::Text);
        found.emplace_back(key.block, key.text);
      }
      EXPECT_EQ(found, keys);
    }
  }
}

// Each recorded block must get the hashes that the prompt that caused it gets.
TEST_P(CapturedEvents, BecomeTheBlocksOfTheirPrompts) {
  EventNormalizer normalizer({.block_size = GetParam().block_size});
  EventBatch decoded;
  RecordingSink sink;
  std::map<EngineHash, std::string> salts;  // of every salted block
  std::size_t expected_events = 0;
  for (const Batch& batch : batches()) {
    SCOPED_TRACE(batch.name);
    ASSERT_TRUE(decode_batch(batch.payload, decoded));
    sink.calls.clear();
    normalizer.apply(decoded, sink);
    const json::Array& events = *(*batch.decoded.as_array())[1].as_array();
    std::size_t next = 0;             // call
    std::vector<EngineHash> removed;  // of a call, by the events so far
    for (std::size_t i = 0; i < events.size(); ++i, ++expected_events) {
      ASSERT_LT(next, sink.calls.size());
      const RecordingSink::Call& call = sink.calls[next];
      EXPECT_EQ(call.tier, Tier::Device);
      if (text(events[i], "type") == "BlockRemoved") {
        // Removals in a row are one call.
        EXPECT_EQ(call.what, "removed");
        std::ranges::copy(integers(events[i], "block_hashes"), std::back_inserter(removed));
        ASSERT_LE(removed.size(), call.hashes.size());
        if (removed.size() == call.hashes.size()) {
          EXPECT_EQ(removed, call.hashes);
          removed.clear();
          ++next;
        }
        continue;
      }
      ++next;
      if (text(events[i], "type") != "BlockStored") {
        EXPECT_EQ(call.what, "cleared");
        continue;
      }
      std::string salt = text(events[i], "cache_salt");
      if (batch.name == "cache-salt") {
        salt = "tenant-a";
      } else if (call.parent && salts.contains(*call.parent)) {
        salt = salts[*call.parent];
      }
      std::vector<LocalHash> locals;
      local_hashes(integers<std::uint32_t>(events[i], "token_ids"), {GetParam().block_size},
                   hash_seed(text(events[i], "lora_name"), salt), locals);
      const std::vector<EngineHash> hashes = integers(events[i], "block_hashes");
      ASSERT_EQ(call.blocks.size(), hashes.size());
      ASSERT_EQ(locals.size(), hashes.size());
      for (std::size_t block = 0; block < hashes.size(); ++block) {
        EXPECT_EQ(call.blocks[block], (StoredBlock{hashes[block], locals[block]}));
        if (!salt.empty()) {
          salts[hashes[block]] = salt;
        }
      }
    }
    EXPECT_EQ(next, sink.calls.size());
  }
  EXPECT_GE(expected_events, GetParam().batches);
  for (int reason = 0; reason < kDropReasonCount; ++reason) {
    EXPECT_EQ(normalizer.dropped(static_cast<DropReason>(reason)), 0U) << reason;
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, CapturedEvents,
                         ::testing::Values(Recording{"vllm-0.32.0", 32, 17},
                                           Recording{"vllm-0.33.0", 32, 18},
                                           Recording{"sglang-0.5.23", 16, 9}),
                         [](const auto& parameter) {
                           std::string name = parameter.param.file;
                           std::ranges::replace_if(
                               name, [](char c) { return c == '-' || c == '.'; }, '_');
                           return name;
                         });

}  // namespace
}  // namespace fairlead::kv
