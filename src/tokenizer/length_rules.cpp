#include "tokenizer/length_rules.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>

namespace fairlead::tokenizer {

namespace {

/// One of the two members; the first failure is kept, so that its fields are read in a row.
class Reader {
 public:
  Reader(std::string_view part, const json::Value& config) : part_(part), config_(config) {
    if (config.as_object() == nullptr) {
      bad("not an object");
    }
  }

  std::uint64_t number(std::string_view name, std::uint64_t largest = UINT64_MAX) {
    const json::Value* value = config_.find(name);
    std::uint64_t result = 0;
    bool valid = false;
    if (value != nullptr && value->as_int() != nullptr) {
      valid = *value->as_int() >= 0;
      result = valid ? static_cast<std::uint64_t>(*value->as_int()) : 0;
    } else if (const auto* big =
                   value != nullptr ? std::get_if<json::BigInt>(&value->storage()) : nullptr) {
      const char* end = big->digits.data() + big->digits.size();
      valid = std::from_chars(big->digits.data(), end, result).ec == std::errc();
    }
    if (!valid || result > largest) {
      bad(fmt::format("{} must be a number from 0 to {}", name, largest));
    }
    return result;
  }

  /// The index of the text that a member is; `fallback` when it is not there.
  template <std::size_t N>
  std::size_t choice(std::string_view name, const std::array<std::string_view, N>& texts,
                     std::optional<std::size_t> fallback = {}) {
    const json::Value* value = config_.find(name);
    if (value == nullptr && fallback) {
      return *fallback;
    }
    const std::string* text = value != nullptr ? value->as_string() : nullptr;
    const auto found = text != nullptr ? std::ranges::find(texts, *text) : texts.end();
    if (found == texts.end()) {
      bad(fmt::format("{} must be {}", name, fmt::join(texts, " or ")));
    }
    return static_cast<std::size_t>(found - texts.begin());
  }

  const json::Value* find(std::string_view name) const { return config_.find(name); }

  void bad(std::string_view message) {
    if (result_) {
      result_ = fail(ErrorCode::InvalidRequest,
                     fmt::format("tokenizer.json: {}: {}", part_, message), std::string(part_));
    }
  }

  const Result<>& result() const { return result_; }

 private:
  std::string_view part_;
  const json::Value& config_;
  Result<> result_;
};

constexpr std::array<std::string_view, 2> kDirections = {"Right", "Left"};
constexpr std::array<std::string_view, 3> kStrategies = {"OnlySecond", "OnlyFirst", "LongestFirst"};
constexpr std::array<std::string_view, 1> kLongest = {"BatchLongest"};

Result<Truncation> read_truncation(const json::Value& config) {
  Reader reader("truncation", config);
  Truncation result;
  result.max_length = reader.number("max_length");
  result.stride = reader.number("stride");
  result.only_second = reader.choice("strategy", kStrategies) == 0;
  result.at_front = reader.choice("direction", kDirections, 0) == 1;
  return reader.result() ? Result<Truncation>(result) : std::unexpected(reader.result().error());
}

Result<Padding> read_padding(const json::Value& config) {
  Reader reader("padding", config);
  Padding result;
  const json::Value* strategy = reader.find("strategy");
  if (strategy != nullptr && strategy->find("Fixed") != nullptr) {
    Reader length("padding", *strategy);
    result.length = length.number("Fixed");
    if (!length.result()) {
      return std::unexpected(length.result().error());
    }
  } else {
    reader.choice("strategy", kLongest);
  }
  if (const json::Value* multiple = reader.find("pad_to_multiple_of");
      multiple != nullptr && !multiple->is_null()) {
    result.multiple = reader.number("pad_to_multiple_of");
  }
  result.id = static_cast<TokenId>(reader.number("pad_id", UINT32_MAX));
  result.at_front = reader.choice("direction", kDirections) == 1;
  return reader.result() ? Result<Padding>(result) : std::unexpected(reader.result().error());
}

Result<> truncate(const Truncation& rule, std::size_t before, std::size_t behind,
                  std::vector<TokenId>& ids) {
  const std::size_t around = before + behind;
  const std::size_t size = ids.size() - around;
  // Where not even what is around the text has room, the reference's subtraction wraps.
  if (rule.max_length < around || size <= rule.max_length - around) {
    return {};
  }
  const auto left = static_cast<std::size_t>(rule.max_length - around);
  if (left > 0 && rule.only_second) {
    return fail(ErrorCode::InvalidRequest,
                "truncation of the second text only, and there is only one");
  }
  if (left > 0 && rule.stride >= left) {
    return fail(ErrorCode::InvalidRequest,
                fmt::format("truncation leaves {} tokens of the text, which is not more than its "
                            "stride of {}",
                            left, rule.stride));
  }
  const auto text = ids.begin() + static_cast<std::ptrdiff_t>(before);
  const auto cut = static_cast<std::ptrdiff_t>(size - left);
  const auto first = rule.at_front ? text : text + static_cast<std::ptrdiff_t>(left);
  ids.erase(first, first + cut);
  return {};
}

Result<> pad(const Padding& rule, std::vector<TokenId>& ids) {
  std::uint64_t length = rule.length.value_or(ids.size());
  const std::uint64_t rest = rule.multiple == 0 ? 0 : length % rule.multiple;
  const std::uint64_t more = rest == 0 ? 0 : rule.multiple - rest;
  length = more > UINT64_MAX - length ? UINT64_MAX : length + more;
  if (length <= ids.size()) {
    return {};
  }
  if (length > kMaxPaddedIds) {
    return fail(ErrorCode::InvalidRequest,
                fmt::format("padding to {} tokens; {} are possible", length, kMaxPaddedIds));
  }
  ids.insert(rule.at_front ? ids.begin() : ids.end(), static_cast<std::size_t>(length) - ids.size(),
             rule.id);
  return {};
}

}  // namespace

Result<LengthRules> read_length_rules(const json::Value& truncation, const json::Value& padding) {
  LengthRules rules;
  if (!truncation.is_null()) {
    const Result<Truncation> read = read_truncation(truncation);
    if (!read) {
      return std::unexpected(read.error());
    }
    rules.truncation = *read;
  }
  if (!padding.is_null()) {
    const Result<Padding> read = read_padding(padding);
    if (!read) {
      return std::unexpected(read.error());
    }
    rules.padding = *read;
  }
  return rules;
}

Result<> apply_length_rules(const LengthRules& rules, std::size_t before, std::size_t behind,
                            std::vector<TokenId>& ids) {
  if (rules.truncation) {
    if (Result<> done = truncate(*rules.truncation, before, behind, ids); !done) {
      return done;
    }
  }
  return rules.padding ? pad(*rules.padding, ids) : Result<>();
}

}  // namespace fairlead::tokenizer
