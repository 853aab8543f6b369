#include "tokenizer/pre_tokenizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <utility>

namespace fairlead::tokenizer {

namespace {

constexpr std::size_t kMaxSplits = 32;
// Bytes of text, and matches of a regex, between two looks at whether the result is still wanted.
constexpr std::size_t kStopBytes = 64 * 1024;
constexpr std::size_t kStopMatches = 4096;

std::unexpected<Error> stopped() {
  return fail(ErrorCode::ClientGone, "nobody waits for the tokens any more");
}

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

std::optional<SplitBehavior> behavior_of(std::string_view name) {
  constexpr std::pair<std::string_view, SplitBehavior> kNames[] = {
      {"Removed", SplitBehavior::Removed},
      {"Isolated", SplitBehavior::Isolated},
      {"MergedWithPrevious", SplitBehavior::MergedWithPrevious},
      {"MergedWithNext", SplitBehavior::MergedWithNext},
      {"Contiguous", SplitBehavior::Contiguous},
  };
  for (const auto& [key, behavior] : kNames) {
    if (key == name) {
      return behavior;
    }
  }
  return std::nullopt;
}

}  // namespace

Result<Split> Split::from_regex(std::string_view pattern, SplitBehavior behavior, bool invert,
                                bool force_regex) {
  Split split;
  split.behavior_ = behavior;
  split.invert_ = invert;
  // A scanner's words cover the whole text, so both behaviours come to the same.
  const bool keeps_words =
      (behavior == SplitBehavior::Isolated) || (behavior == SplitBehavior::Removed && invert);
  if (keeps_words && !force_regex) {
    split.scanner_ = recognize_pattern(pattern);
  }
  if (split.scanner_ == Scanner::None) {
    Result<Regex> regex = Regex::compile(pattern);
    if (!regex) {
      return std::unexpected(regex.error());
    }
    split.regex_ = std::move(*regex);
  }
  return split;
}

Result<Split> Split::from_string(std::string_view literal, SplitBehavior behavior, bool invert) {
  if (literal.empty()) {
    return unsupported("Split with an empty String pattern");
  }
  Split split;
  split.literal_ = literal;
  split.behavior_ = behavior;
  split.invert_ = invert;
  return split;
}

Result<> Split::find_parts(std::string_view text, std::vector<Part>& parts,
                           const std::stop_token& stop) const {
  std::size_t done = 0;
  const auto add = [&](const Span& match) {
    if (done != match.begin) {
      parts.push_back({{done, match.begin}, invert_});
    }
    parts.push_back({match, !invert_});
    done = match.end;
  };
  if (scanner_ != Scanner::None) {
    for_each_word(scanner_, text, [&](std::size_t begin, std::size_t end) { add({begin, end}); });
  } else if (regex_) {
    Regex::Matches matches(*regex_, text);
    Span match;
    for (std::size_t i = 1;; ++i) {
      if (i % kStopMatches == 0 && stop.stop_requested()) {
        return stopped();
      }
      const Result<bool> found = matches.next(match);
      if (!found) {
        return std::unexpected(found.error());
      }
      if (!*found) {
        break;
      }
      add(match);
    }
  } else {
    for (std::size_t at = text.find(literal_); at != std::string_view::npos;
         at = text.find(literal_, at + literal_.size())) {
      add({at, at + literal_.size()});
    }
  }
  if (done != text.size()) {
    parts.push_back({{done, text.size()}, invert_});
  }
  return {};
}

Result<> Split::apply(std::string_view text, std::size_t base, std::vector<Span>& out,
                      const std::stop_token& stop) const {
  std::vector<Part> parts;
  if (Result<> found = find_parts(text, parts, stop); !found) {
    return found;
  }
  std::vector<Span> pieces;
  bool previous_matched = false;
  const auto take = [&](const Part& part, bool join, auto&& extend) {
    if (join && !pieces.empty()) {
      extend(pieces.back());
    } else {
      pieces.push_back(part.span);
    }
    previous_matched = part.matched;
  };
  switch (behavior_) {
    case SplitBehavior::Removed:
      std::erase_if(parts, [](const Part& part) { return part.matched; });
      [[fallthrough]];
    case SplitBehavior::Isolated:
      for (const Part& part : parts) {
        pieces.push_back(part.span);
      }
      break;
    case SplitBehavior::Contiguous:
      for (const Part& part : parts) {
        take(part, part.matched == previous_matched, [&](Span& last) { last.end = part.span.end; });
      }
      break;
    case SplitBehavior::MergedWithPrevious:
      for (const Part& part : parts) {
        take(part, part.matched && !previous_matched,
             [&](Span& last) { last.end = part.span.end; });
      }
      break;
    case SplitBehavior::MergedWithNext:
      for (const Part& part : std::views::reverse(parts)) {
        take(part, part.matched && !previous_matched,
             [&](Span& last) { last.begin = part.span.begin; });
      }
      std::reverse(pieces.begin(), pieces.end());
      break;
  }
  for (const Span& piece : pieces) {
    if (piece.begin != piece.end) {
      out.push_back({base + piece.begin, base + piece.end});
    }
  }
  return {};
}

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
          ? behavior_of(*behavior_name->as_string())
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

// The reference isolates characters, or runs of them, that are numeric: general category N.
Result<> PreTokenizer::add_digits(const json::Value& config) {
  if (splits_.size() >= kMaxSplits) {
    return unsupported(fmt::format("more than {} Splits", kMaxSplits));
  }
  const Result<bool> individual = flag(config, "individual_digits", false);
  if (!individual) {
    return std::unexpected(individual.error());
  }
  Result<Split> split =
      Split::from_regex(*individual ? "\\p{N}" : "\\p{N}+", SplitBehavior::Isolated, false);
  if (!split) {
    return std::unexpected(split.error());
  }
  splits_.push_back(std::move(*split));
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
