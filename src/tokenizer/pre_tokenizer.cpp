#include "tokenizer/pre_tokenizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

namespace fairlead::tokenizer {

namespace {

constexpr std::size_t kMaxSplits = 32;
constexpr std::string_view kPart = "pre_tokenizer";

// Appends the ids of the scanner's words.
Result<> encode_words(Scanner scanner, std::string_view text, const BpeModel& model,
                      std::vector<TokenId>& out, const std::stop_token& stop) {
  // Most text has a token for every four bytes or fewer.
  if (const std::size_t wanted = out.size() + text.size() / 4; wanted > out.capacity()) {
    out.reserve(std::max(wanted, 2 * out.capacity()));
  }
  std::array<std::size_t, BpeModel::kBatch> ends;  // NOLINT: filled up to count
  std::size_t begin = 0;
  std::size_t count = 0;
  const auto encode = [&] {
    model.encode(text, begin, std::span(ends).first(count), out, stop);
    begin = ends[count - 1];
    count = 0;
  };
  for (std::size_t pos = 0; pos < text.size();) {
    pos = for_each_word(scanner, text, pos, std::min(pos + kStopBytes, text.size()),
                        [&](std::size_t /*begin*/, std::size_t end) {
                          ends[count++] = end;
                          if (count == ends.size()) {
                            encode();
                          }
                        });
    if (stop.stop_requested()) {
      return stopped();
    }
  }
  if (count != 0) {
    encode();
  }
  return {};
}

}  // namespace

Result<PreTokenizer> PreTokenizer::create(const json::Value& config) {
  PreTokenizer result;
  const auto add = [&](const ComponentConfig& step) { return result.add(step); };
  if (Result<> added = each_step(kPart, "pretokenizers", config, add); !added) {
    return std::unexpected(added.error());
  }
  if (!result.byte_level_) {
    return ComponentConfig(kPart, config).unsupported("without a ByteLevel step");
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

PreTokenizer PreTokenizer::of_scanner(Scanner scanner) {
  PreTokenizer result;
  result.byte_level_ = true;
  result.scanner_ = scanner;
  scanner_kinds(scanner);  // built now, so that no request waits for it
  return result;
}

Result<> PreTokenizer::add(const ComponentConfig& config) {
  const std::string_view type = config.type();
  if (byte_level_) {
    return config.unsupported(fmt::format("'{}' after ByteLevel", type));
  }
  if (type == "ByteLevel") {
    return add_byte_level(config);
  }
  if (type != "Split" && type != "Digits") {
    return config.unsupported(fmt::format("type '{}'", type));
  }
  if (splits_.size() >= kMaxSplits) {
    return config.unsupported(fmt::format("more than {} Splits", kMaxSplits));
  }
  return type == "Split" ? add_split(config) : add_digits(config);
}

Result<> PreTokenizer::add_split(const ComponentConfig& config) {
  Result<Split> split = read_split(config, config.flag("invert", false));
  if (!split) {
    return std::unexpected(split.error());
  }
  splits_.push_back(std::move(*split));
  if (const auto pattern = config.pattern();
      pattern->is_regex && *read_behavior(config) == SplitBehavior::Isolated) {
    isolated_.emplace_back(pattern->text);
  }
  return {};
}

Result<> PreTokenizer::add_digits(const ComponentConfig& config) {
  const Result<bool> individual = config.flag("individual_digits", false);
  if (!individual) {
    return std::unexpected(individual.error());
  }
  splits_.push_back(split_digits(*individual));
  return {};
}

Result<> PreTokenizer::add_byte_level(const ComponentConfig& config) {
  const Result<bool> prefix = config.flag("add_prefix_space", true);
  const Result<bool> regex = config.flag("use_regex", true);
  if (!prefix || !regex) {
    return std::unexpected(!prefix ? prefix.error() : regex.error());
  }
  add_prefix_space_ = *prefix;
  use_regex_ = *regex;
  byte_level_ = true;
  return {};
}

bool PreTokenizer::can_do(const json::Value& config) {
  bool byte_level = false;
  bool known = true;
  const Result<> walked =
      each_step(kPart, "pretokenizers", config, [&](const ComponentConfig& step) {
        known = known && !byte_level &&
                (step.type() == "ByteLevel" || step.type() == "Split" || step.type() == "Digits");
        byte_level = step.type() == "ByteLevel";
        return Result<>();
      });
  return walked && known && byte_level;
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
