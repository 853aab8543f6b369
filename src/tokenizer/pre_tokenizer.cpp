#include "tokenizer/pre_tokenizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tokenizer/component_config.hpp"

namespace fairlead::tokenizer {

namespace {

constexpr std::size_t kMaxSplits = 32;

// Appends the ids of the scanner's words.
Result<> encode_words(Scanner scanner, std::string_view text, const BpeModel& model,
                      std::vector<TokenId>& out, const std::stop_token& stop) {
  for (std::size_t pos = 0; pos < text.size();) {
    pos = for_each_word(scanner, text, pos, std::min(pos + kStopBytes, text.size()),
                        [&](std::size_t begin, std::size_t end) {
                          model.encode(text.substr(begin, end - begin), out, stop);
                        });
    if (stop.stop_requested()) {
      return stopped();
    }
  }
  return {};
}

std::unexpected<Error> bad(std::string message) {
  return fail(ErrorCode::InvalidRequest, "pre_tokenizer: " + std::move(message), "pre_tokenizer");
}

std::unexpected<Error> unsupported(std::string message) {
  return fail(ErrorCode::UnsupportedField, "pre_tokenizer: " + std::move(message), "pre_tokenizer");
}

std::string_view type_of(const json::Value& config) {
  const json::Value* type = config.find("type");
  return type != nullptr && type->as_string() != nullptr ? std::string_view(*type->as_string())
                                                         : std::string_view();
}

// A boolean member; `fallback` when absent.
Result<bool> flag(const json::Value& config, std::string_view name, bool fallback) {
  const json::Value* value = config.find(name);
  if (value == nullptr) {
    return fallback;
  }
  if (value->as_bool() == nullptr) {
    return bad(fmt::format("{} must be true or false", name));
  }
  return *value->as_bool();
}

}  // namespace

Result<PreTokenizer> PreTokenizer::create(const json::Value& config) {
  PreTokenizer result;
  if (Result<> added = result.add(config); !added) {
    return std::unexpected(added.error());
  }
  if (!result.byte_level_) {
    return unsupported("without a ByteLevel step");
  }
  if (result.splits_.size() == 1) {
    result.scanner_ = result.splits_[0].scanner();
  } else if (result.isolated_.size() == result.splits_.size()) {
    result.scanner_ = recognize_patterns(result.isolated_);
  }
  scanner_kinds(result.scanner_);  // built now, so that no request waits for it
  result.isolated_ = {};
  return result;
}

Result<> PreTokenizer::add(const json::Value& config) {
  if (config.is_null()) {
    return {};
  }
  const std::string_view type = type_of(config);
  if (byte_level_) {
    return unsupported(fmt::format("'{}' after ByteLevel", type));
  }
  if (type == "Sequence") {
    const json::Value* list = config.find("pretokenizers");
    if (list == nullptr || list->as_array() == nullptr) {
      return bad("Sequence without pretokenizers");
    }
    for (const json::Value& step : *list->as_array()) {
      if (Result<> added = add(step); !added) {
        return added;
      }
    }
    return {};
  }
  if (type == "Split") {
    return add_split(config);
  }
  if (type == "Digits") {
    return add_digits(config);
  }
  if (type == "ByteLevel") {
    return add_byte_level(config);
  }
  return unsupported(fmt::format("type '{}'", type));
}

Result<> PreTokenizer::add_split(const json::Value& config) {
  if (splits_.size() >= kMaxSplits) {
    return unsupported(fmt::format("more than {} Splits", kMaxSplits));
  }
  const json::Value* behavior_name = config.find("behavior");
  const std::optional<SplitBehavior> behavior =
      behavior_name != nullptr && behavior_name->as_string() != nullptr
          ? split_behavior(*behavior_name->as_string())
          : std::nullopt;
  if (!behavior) {
    return bad("Split without a known behavior");
  }
  const Result<bool> invert = flag(config, "invert", false);
  if (!invert) {
    return std::unexpected(invert.error());
  }
  const json::Value* pattern = config.find("pattern");
  const json::Value* regex = pattern != nullptr ? pattern->find("Regex") : nullptr;
  const json::Value* literal = pattern != nullptr ? pattern->find("String") : nullptr;
  Result<Split> split = bad("Split without a Regex or String pattern");
  if (regex != nullptr && regex->as_string() != nullptr) {
    split = Split::from_regex(*regex->as_string(), *behavior, *invert);
    if (*behavior == SplitBehavior::Isolated) {
      isolated_.push_back(*regex->as_string());
    }
  } else if (literal != nullptr && literal->as_string() != nullptr) {
    split = Split::from_string(*literal->as_string(), *behavior, *invert);
  }
  if (!split) {
    return std::unexpected(split.error());
  }
  splits_.push_back(std::move(*split));
  return {};
}

Result<> PreTokenizer::add_digits(const json::Value& config) {
  if (splits_.size() >= kMaxSplits) {
    return unsupported(fmt::format("more than {} Splits", kMaxSplits));
  }
  const Result<bool> individual = flag(config, "individual_digits", false);
  if (!individual) {
    return std::unexpected(individual.error());
  }
  splits_.push_back(split_digits(*individual));
  return {};
}

Result<> PreTokenizer::add_byte_level(const json::Value& config) {
  const Result<bool> prefix = flag(config, "add_prefix_space", true);
  const Result<bool> regex = flag(config, "use_regex", true);
  if (!prefix || !regex) {
    return std::unexpected(!prefix ? prefix.error() : regex.error());
  }
  add_prefix_space_ = *prefix;
  use_regex_ = *regex;
  byte_level_ = true;
  return {};
}

bool PreTokenizer::keeps_text() const { return std::ranges::all_of(splits_, &Split::keeps_text); }

Result<> PreTokenizer::encode_piece(std::string_view piece, const BpeModel& model,
                                    std::vector<TokenId>& out, const std::stop_token& stop) const {
  std::string prefixed;
  if (add_prefix_space_ && !piece.starts_with(' ')) {
    prefixed.reserve(piece.size() + 1);
    prefixed += ' ';
    prefixed += piece;
    piece = prefixed;
  }
  if (use_regex_) {
    return encode_words(Scanner::Gpt2, piece, model, out, stop);
  }
  model.encode(piece, out, stop);
  return {};
}

Result<> PreTokenizer::encode(std::string_view text, const BpeModel& model,
                              std::vector<TokenId>& out, const std::stop_token& stop) const {
  if (scanner_ != Scanner::None && !add_prefix_space_ && !use_regex_) {
    return encode_words(scanner_, text, model, out, stop);
  }
  std::vector<Span> pieces;
  if (!text.empty()) {
    pieces.push_back({0, text.size()});
  }
  std::vector<Span> next;
  for (const Split& split : splits_) {
    next.clear();
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if ((i + 1) % kStopMatches == 0 && stop.stop_requested()) {
        return stopped();
      }
      const Span& piece = pieces[i];
      const std::string_view part = text.substr(piece.begin, piece.end - piece.begin);
      if (Result<> done = split.apply(part, piece.begin, next, stop); !done) {
        return done;
      }
    }
    pieces.swap(next);
  }
  std::size_t next_look = kStopBytes;
  for (const Span& piece : pieces) {
    const std::string_view part = text.substr(piece.begin, piece.end - piece.begin);
    if (Result<> done = encode_piece(part, model, out, stop); !done) {
      return done;
    }
    if (piece.end >= next_look) {
      next_look = piece.end + kStopBytes;
      if (stop.stop_requested()) {
        return stopped();
      }
    }
  }
  return {};
}

}  // namespace fairlead::tokenizer
