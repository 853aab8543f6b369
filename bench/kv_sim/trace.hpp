#pragma once

#include <chrono>
#include <cstdint>
#include <istream>
#include <vector>

#include "base/error.hpp"
#include "kv/hashes.hpp"

namespace fairlead::kv_sim {

/// Virtual time since the start of a run.
using Nanos = std::chrono::nanoseconds;

/// Tokens that one hash id of a trace stands for.
inline constexpr std::uint32_t kTraceBlock = 512;

/// One request of a trace.
struct Record {
  Nanos at{0};                      ///< When it arrives.
  std::uint32_t input_tokens = 0;   ///< Of the prompt.
  std::uint32_t output_tokens = 1;  ///< At least 1.
  std::vector<std::uint64_t> ids;   ///< One per started 512 tokens: equal id = equal prefix.
};

/// What arrives: a trace, perhaps several copies of it at once, faster or slower.
struct Workload {
  std::vector<Record> records;  ///< By time.
  std::uint32_t copies = 1;     ///< Of every record, with ids of their own.
  double speed = 1;             ///< 2 = twice as fast.
  bool reuse = true;            ///< False: no two requests have a block in common.

  /// Requests in all.
  std::size_t size() const { return records.size() * copies; }
  /// The record of the nth request.
  const Record& record(std::size_t n) const { return records[n / copies]; }
  /// When the nth request arrives.
  Nanos at(std::size_t n) const;
  /// The nth request's complete prompt blocks, appended: content, and content with all before it.
  void prompt(std::size_t n, std::uint32_t block_size, std::vector<kv::LocalHash>& locals,
              std::vector<kv::SequenceHash>& hashes) const;
};

/// Content of a block that no other request has.
kv::LocalHash unique_block(std::size_t request, std::uint32_t position);

/// Reads JSON lines with `timestamp` (ms), `input_length`, `output_length`, `hash_ids`; those
/// later than `limit` are left out. Errors name the line.
Result<std::vector<Record>> read_trace(std::istream& in, Nanos limit);

/// So many equal requests at once.
std::vector<Record> burst(std::uint32_t requests, std::uint32_t input, std::uint32_t output);

/// Requests that share a prefix, then go on with one of some documents, popular ones first, then
/// with a question of their own.
struct HotOptions {
  std::uint32_t requests = 4000;         ///< In all.
  double rate = 8;                       ///< Per second, on average.
  std::uint32_t prefix_tokens = 4096;    ///< That all share.
  std::uint32_t documents = 200;         ///< To choose from.
  std::uint32_t document_tokens = 4096;  ///< Of each.
  double exponent = 1.1;                 ///< The nth document is chosen like n^-exponent.
  std::uint32_t question_tokens = 512;   ///< That no other request has.
  std::uint32_t output_tokens = 200;     ///< Of each answer.
  std::uint64_t seed = 1;                ///< Of times and documents.
};

/// Such requests, at random times.
std::vector<Record> hot(const HotOptions& options);

}  // namespace fairlead::kv_sim
