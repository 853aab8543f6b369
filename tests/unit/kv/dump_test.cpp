#include "kv/dump.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace fairlead::kv {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kHuge = std::numeric_limits<std::uint64_t>::max();

DumpedTarget target(std::size_t blocks, std::size_t salts) {
  DumpedTarget out{.model = "m\n\"",
                   .name_space = "ns",
                   .role = "decode",
                   .block_size = 16,
                   .bigram = true,
                   .worker_id = (std::uint64_t{1} << 53U) - 1,
                   .rank = 3,
                   .endpoint = "http://h:1",
                   .instance_id = "i",
                   .state = "live",
                   .checkpoint = {},
                   .blocks = {}};
  for (std::uint64_t i = 0; i < blocks; ++i) {
    out.blocks.push_back({.engine = kHuge - i, .sequence = i * i, .copies = {1, 0, 2, 3}});
  }
  out.checkpoint =
      Checkpoint{.point = {.sequence = kHuge - 1,
                           .fingerprint = kHuge,
                           .coverage = Coverage::Doubtful,
                           .batches = 1,
                           .stored = 2,
                           .removed = 3,
                           .lost = 4},
                 .memory = {.bigram = true, .groups = {{-1, false}, {7, true}}, .salted = {}}};
  for (std::uint64_t i = 0; i < salts; ++i) {
    out.checkpoint->memory.salted.push_back(
        {i, {.salt = kHuge - i, .copies = 5, .ambiguous = i % 2 == 0}});
  }
  return out;
}

std::string write(const std::vector<DumpedTarget>& targets) {
  std::string out;
  append_dump_start(out);
  std::size_t blocks = 0;
  for (const DumpedTarget& one : targets) {
    append_dump_target(out, one);
    append_dump_blocks(out, one.blocks);
    blocks += one.blocks.size();
  }
  append_dump_end(out, targets.size(), blocks);
  return out;
}

Result<std::vector<DumpedTarget>> read(std::string_view text, std::size_t piece = kHuge,
                                       std::size_t max_bytes = std::size_t{1} << 24U) {
  DumpReader reader(max_bytes);
  while (!text.empty()) {
    const std::string_view part = text.substr(0, piece);
    if (const Result<> fed = reader.feed(part); !fed) {
      return std::unexpected(fed.error());
    }
    text.remove_prefix(part.size());
  }
  return reader.take();
}

void expect_equal(const DumpedTarget& a, const DumpedTarget& b) {
  EXPECT_EQ(std::tie(a.model, a.name_space, a.role, a.block_size, a.bigram, a.worker_id, a.rank,
                     a.endpoint, a.instance_id, a.state),
            std::tie(b.model, b.name_space, b.role, b.block_size, b.bigram, b.worker_id, b.rank,
                     b.endpoint, b.instance_id, b.state));
  EXPECT_EQ(a.blocks, b.blocks);
  ASSERT_EQ(a.checkpoint.has_value(), b.checkpoint.has_value());
  if (a.checkpoint) {
    EXPECT_EQ(a.checkpoint->point, b.checkpoint->point);
    EXPECT_EQ(a.checkpoint->memory, b.checkpoint->memory);
  }
}

TEST(DumpTest, WhatIsWrittenIsReadInPiecesOfAnySize) {
  std::vector<DumpedTarget> targets{target(1300, 600), target(0, 0), target(512, 1)};
  targets[2].checkpoint->memory.bigram.reset();
  const std::string text = write(targets);
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, std::size_t{65536}}) {
    const auto back = read(text, piece);
    ASSERT_TRUE(back) << back.error().message;
    ASSERT_EQ(back->size(), targets.size());
    for (std::size_t i = 0; i < targets.size(); ++i) {
      expect_equal((*back)[i], targets[i]);
    }
  }
}

TEST(DumpTest, BlocksOfATargetWithoutACheckpointAreNotKept) {
  std::vector<DumpedTarget> targets{target(700, 0)};
  targets[0].checkpoint.reset();
  targets[0].endpoint.clear();
  const auto back = read(write(targets), kHuge, 4096);
  ASSERT_TRUE(back) << back.error().message;
  targets[0].blocks.clear();
  expect_equal((*back)[0], targets[0]);
}

TEST(DumpTest, ADumpThatIsNotWholeIsRefusedWhereverItEnds) {
  const std::string text = write({target(3, 2), target(1, 0)});
  ASSERT_TRUE(read(text));
  for (std::size_t length = 0; length < text.size(); ++length) {
    EXPECT_FALSE(read(std::string_view(text).substr(0, length))) << length;
  }
}

struct Bad {
  std::string_view from;  // what of a good dump
  std::string to;         // becomes what
  std::string_view reason;
};

TEST(DumpTest, SaysWhatIsWrong) {
  const std::string good = write({target(2, 1)});
  const Bad cases[] = {
      {R"({"version":2})", R"({"version":1})", "version"},
      {R"({"version":2})", R"({"version":3})", "version"},
      {R"({"version":2})", "{}", "version"},
      {R"({"version":2})", "[", "no JSON"},
      {R"({"target")", R"({"else")", "unknown kind"},
      {R"({"target")", R"({"error":{},"target")", "could not write"},
      {R"("blocks":2,"check)", R"("blocks":3,"check)", "missing"},
      {R"("blocks":2,"check)", R"("blocks":1,"check)", "other blocks"},
      {R"("blocks":2,"check)", R"("blocks":-2,"check)", "lacks a member"},
      {R"("blocks":2,"check)", R"("blocks":18446744073709551616,"check)", "lacks a member"},
      {R"("blocks":2,"check)", R"("blocks":true,"check)", "lacks a member"},
      {R"("dp_rank":3)", R"("dp_rank":4294967296)", "lacks a member"},
      {R"("worker_id")", R"("worker")", "lacks a member"},
      {R"("sequence":18446744073709551614)", R"("sequence":18446744073709551615)", "checkpoint"},
      {R"("coverage":"doubtful")", R"("coverage":"great")", "checkpoint"},
      {R"([7,true])", R"([7])", "checkpoint"},
      {R"("salted":1})", R"("salted":262145})", "checkpoint"},
      {R"("salted":1})", R"("salted":2})", "other blocks"},
      {R"("salted":1})", R"("salted":0})", "other blocks"},
      {R"({"blocks":[[)", R"({"blocks":[ [)", "malformed"},
      {R"({"blocks":[[)", R"({"blocks":[[-)", "malformed"},
      {R"({"blocks":[[)", R"({"blocks":[[99999999999999999999,)", "malformed"},
      {R"(,0,1,0,2,3])", R"(,0,1,0,2])", "malformed"},
      {R"(,0,1,0,2,3])", R"(,0,1,0,2,3,4])", "malformed"},
      {R"(,0,1,0,2,3])", R"(,0,0,0,0,0])", "no copies"},
      {R"(,0,1,0,2,3])", R"(,0,1,0,2,4294967296])", "too many"},
      {R"("targets":1)", R"("targets":2)", "totals"},
      {R"("targets":1)", R"("targets":null)", "totals"},
      {"}}\n{\"salted", "}}\n{\"blocks\":[]}\n{\"salted", "malformed"},
  };
  for (const Bad& bad : cases) {
    std::string text = good;
    const std::size_t at = text.find(bad.from);
    ASSERT_NE(at, std::string::npos) << bad.from;
    text.replace(at, bad.from.size(), bad.to);
    const auto read_back = read(text);
    ASSERT_FALSE(read_back) << bad.to;
    EXPECT_THAT(read_back.error().message, HasSubstr(bad.reason)) << bad.to;
  }
  const auto behind = read(good + "{}\n");
  ASSERT_FALSE(behind);
  EXPECT_THAT(behind.error().message, HasSubstr("behind its end"));
}

TEST(DumpTest, WhatIsHeldIsBounded) {
  const std::string text = write({target(1000, 0)});
  const auto large = read(text, kHuge, 20000);
  ASSERT_FALSE(large);
  EXPECT_THAT(large.error().message, HasSubstr("too large"));
  DumpReader reader(1000);
  const std::string piece(65536, ' ');
  Result<> fed;
  for (std::size_t i = 0; i <= kMaxDumpLine / piece.size(); ++i) {
    fed = reader.feed(piece);
  }
  ASSERT_FALSE(fed);
  EXPECT_THAT(fed.error().message, HasSubstr("too long"));
  EXPECT_FALSE(reader.feed("\n{}"));
}

}  // namespace
}  // namespace fairlead::kv
