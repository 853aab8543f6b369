#include "kv_sim/trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "base/json.hpp"

namespace fairlead::kv_sim {
namespace {

constexpr std::uint32_t kMaxTokens = 16U << 20U;

// A bijection that spreads (splitmix64): different inputs stay different.
constexpr std::uint64_t spread(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15ULL;
  value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27U)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31U);
}

Result<std::uint64_t> whole(const json::Value& line, std::string_view key) {
  const json::Value* value = line.find(key);
  const std::int64_t* number = value ? value->as_int() : nullptr;
  if (!number || *number < 0) {
    return fail(ErrorCode::InvalidRequest, fmt::format("`{}` is not a whole number", key));
  }
  return static_cast<std::uint64_t>(*number);
}

Result<Record> read_record(std::string_view text) {
  const auto line = json::parse(text);
  if (!line) {
    return std::unexpected(line.error());
  }
  const auto at = whole(*line, "timestamp");
  const auto input = whole(*line, "input_length");
  const auto output = whole(*line, "output_length");
  for (const auto* value : {&at, &input, &output}) {
    if (!*value) {
      return std::unexpected(value->error());
    }
  }
  const json::Value* ids = line->find("hash_ids");
  if (!ids || !ids->as_array() || *input == 0 || *input > kMaxTokens || *output > kMaxTokens ||
      ids->as_array()->size() < (*input + kTraceBlock - 1) / kTraceBlock) {
    return fail(ErrorCode::InvalidRequest, "lengths and `hash_ids` do not match");
  }
  Record record{.at = std::chrono::milliseconds(*at),
                .input_tokens = static_cast<std::uint32_t>(*input),
                .output_tokens = std::max(static_cast<std::uint32_t>(*output), 1U),
                .ids = {}};
  for (const json::Value& id : *ids->as_array()) {
    const std::int64_t* number = id.as_int();
    if (!number || *number < 0 || *number >= (std::int64_t{1} << 32U)) {
      return fail(ErrorCode::InvalidRequest, "a hash id is not a number below 2^32");
    }
    record.ids.push_back(static_cast<std::uint64_t>(*number));
  }
  return record;
}

// Appends an id for each started trace block of so many tokens.
void append_ids(Record& record, std::uint32_t tokens, std::uint64_t first) {
  for (std::uint32_t i = 0; i < (tokens + kTraceBlock - 1) / kTraceBlock; ++i) {
    record.ids.push_back(first + i);
  }
  record.input_tokens += tokens;
}

}  // namespace

Nanos Workload::at(std::size_t n) const {
  return Nanos(std::llround(static_cast<double>(record(n).at.count()) / speed));
}

kv::LocalHash unique_block(std::size_t request, std::uint32_t position) {
  return spread((std::uint64_t{1} << 63U) | (std::uint64_t{request} << 24U) | position);
}

void Workload::prompt(std::size_t n, std::uint32_t block_size, std::vector<kv::LocalHash>& locals,
                      std::vector<kv::SequenceHash>& hashes) const {
  const Record& source = record(n);
  const std::uint64_t copy = n % copies;
  const std::uint32_t parts = kTraceBlock / block_size;
  const std::uint32_t count = source.input_tokens / block_size;
  locals.reserve(locals.size() + count);
  hashes.reserve(hashes.size() + count);
  for (std::uint32_t i = 0; i < count; ++i) {
    // Copies have 2^32 ids each, blocks 2^9 parts each.
    const kv::LocalHash local =
        reuse ? spread((((copy << 32U) + source.ids[i / parts]) << 9U) + i % parts)
              : unique_block(n, i);
    locals.push_back(local);
    hashes.push_back(i == 0 ? kv::root_hash(local) : kv::extend_hash(hashes.back(), local));
  }
}

Result<std::vector<Record>> read_trace(std::istream& in, Nanos limit) {
  std::vector<Record> records;
  std::string text;
  for (std::size_t number = 1; std::getline(in, text); ++number) {
    auto record = read_record(text);
    if (!record) {
      return fail(ErrorCode::InvalidRequest,
                  fmt::format("line {}: {}", number, record.error().message));
    }
    if (!records.empty() && record->at < records.back().at) {
      return fail(ErrorCode::InvalidRequest, fmt::format("line {}: time goes back", number));
    }
    if (record->at <= limit) {
      records.push_back(std::move(*record));
    }
  }
  return records;
}

std::vector<Record> burst(std::uint32_t requests, std::uint32_t input, std::uint32_t output) {
  Record record{.at = Nanos(0), .input_tokens = 0, .output_tokens = output, .ids = {}};
  append_ids(record, input, 0);
  return std::vector<Record>(requests, record);
}

std::vector<Record> hot(const HotOptions& options) {
  std::mt19937_64 random(options.seed);
  std::vector<double> weights;
  for (std::uint32_t i = 0; i < options.documents; ++i) {
    weights.push_back(std::pow(i + 1.0, -options.exponent));
  }
  std::discrete_distribution<std::uint32_t> document(weights.begin(), weights.end());
  std::exponential_distribution<double> pause(options.rate);
  // Parts begin at whole trace blocks, so that ids can tell them apart.
  const auto blocks = [](std::uint32_t tokens) { return (tokens + kTraceBlock - 1) / kTraceBlock; };
  const std::uint64_t documents = blocks(options.prefix_tokens);
  const std::uint64_t questions =
      documents + std::uint64_t{options.documents} * blocks(options.document_tokens);
  std::vector<Record> records;
  double seconds = 0;
  for (std::uint32_t i = 0; i < options.requests; ++i) {
    seconds += pause(random);
    Record record{.at = Nanos(std::llround(seconds * 1e9)),
                  .input_tokens = 0,
                  .output_tokens = options.output_tokens,
                  .ids = {}};
    append_ids(record, blocks(options.prefix_tokens) * kTraceBlock, 0);
    append_ids(record, blocks(options.document_tokens) * kTraceBlock,
               documents + std::uint64_t{document(random)} * blocks(options.document_tokens));
    append_ids(record, options.question_tokens,
               questions + std::uint64_t{i} * blocks(options.question_tokens));
    records.push_back(std::move(record));
  }
  return records;
}

}  // namespace fairlead::kv_sim
