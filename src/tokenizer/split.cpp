#include "tokenizer/split.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tokenizer/utf8_valid.hpp"

namespace fairlead::tokenizer {

namespace {

// Makes pieces of the parts that match and the parts between them.
class Joiner {
 public:
  Joiner(SplitBehavior behavior, const Split::Sink& sink) : behavior_(behavior), sink_(sink) {}

  Result<> take(const Span& part, bool matched) {
    switch (behavior_) {
      case SplitBehavior::Removed: return matched ? Result<>() : emit(part);
      case SplitBehavior::Isolated: return emit(part);
      case SplitBehavior::MergedWithNext:
        if (held_ && !matched) {
          return emit({std::exchange(held_, std::nullopt)->begin, part.end});
        }
        return matched ? hold(part, true) : emit(part);
      case SplitBehavior::MergedWithPrevious:
        return held_ && matched && !held_matched_ ? join(part, true) : hold(part, matched);
      case SplitBehavior::Contiguous:
        return held_ && matched == held_matched_ ? join(part, matched) : hold(part, matched);
    }
    std::unreachable();
  }

  Result<> finish() { return held_ ? emit(*held_) : Result<>(); }

 private:
  Result<> emit(const Span& piece) { return piece.begin != piece.end ? sink_(piece) : Result<>(); }

  // Passes on what was held and holds the part instead.
  Result<> hold(const Span& part, bool matched) {
    const std::optional<Span> before = std::exchange(held_, part);
    held_matched_ = matched;
    return before ? emit(*before) : Result<>();
  }

  Result<> join(const Span& part, bool matched) {
    held_->end = part.end;
    held_matched_ = matched;
    return {};
  }

  SplitBehavior behavior_;
  const Split::Sink& sink_;
  std::optional<Span> held_;
  bool held_matched_ = false;
};

}  // namespace

Result<SplitBehavior> read_behavior(const ComponentConfig& config) {
  constexpr std::pair<std::string_view, SplitBehavior> kNames[] = {
      {"Removed", SplitBehavior::Removed},
      {"Isolated", SplitBehavior::Isolated},
      {"MergedWithPrevious", SplitBehavior::MergedWithPrevious},
      {"MergedWithNext", SplitBehavior::MergedWithNext},
      {"Contiguous", SplitBehavior::Contiguous},
  };
  const Result<std::string_view> name = config.string("behavior");
  if (!name) {
    return std::unexpected(name.error());
  }
  for (const auto& [key, behavior] : kNames) {
    if (key == *name) {
      return behavior;
    }
  }
  return config.bad(fmt::format("behavior '{}' is unknown", *name));
}

Result<Split> read_split(const ComponentConfig& config, const Result<bool>& invert) {
  const Result<SplitBehavior> behavior = read_behavior(config);
  const Result<ComponentConfig::Pattern> pattern = config.pattern();
  if (!behavior || !invert) {
    return std::unexpected(!behavior ? behavior.error() : invert.error());
  }
  if (!pattern) {
    return std::unexpected(pattern.error());
  }
  Result<Split> split = pattern->is_regex ? Split::from_regex(pattern->text, *behavior, *invert)
                                          : Split::from_string(pattern->text, *behavior, *invert);
  return split ? std::move(split) : std::unexpected(config.wrap(split.error()));
}

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
    return from_regex(literal, behavior, invert);
  }
  Split split;
  split.literal_ = literal;
  split.behavior_ = behavior;
  split.invert_ = invert;
  return split;
}

Split Split::from_characters(const CodePointTable& characters, SplitBehavior behavior) {
  Split split;
  split.characters_ = &characters;
  split.behavior_ = behavior;
  return split;
}

// Calls `found` with the matches in order.
template <class Found>
Result<> Split::find(std::string_view text, Found&& found, const std::stop_token& stop) const {
  if (regex_) {
    Regex::Matches matches(*regex_, text);
    Span match;
    for (std::size_t i = 1;; ++i) {
      if (i % kStopMatches == 0 && stop.stop_requested()) {
        return stopped();
      }
      const Result<bool> any = matches.next(match);
      if (!any) {
        return std::unexpected(any.error());
      }
      if (!*any) {
        return {};
      }
      if (Result<> taken = found(match); !taken) {
        return taken;
      }
    }
  }
  Result<> taken;
  for (std::size_t pos = 0; pos < text.size();) {
    if (stop.stop_requested()) {
      return stopped();
    }
    const std::size_t end = std::min(text.size(), pos + kStopBytes);
    if (scanner_ != Scanner::None) {
      pos = for_each_word(scanner_, text, pos, end, [&](std::size_t begin, std::size_t word_end) {
        if (taken) {
          taken = found({begin, word_end});
        }
      });
    } else if (characters_ != nullptr) {
      for (std::size_t length = 0; pos < end && taken; pos += length) {
        if ((*characters_)[decode_valid(text.data() + pos, length)] != 0) {
          taken = found({pos, pos + length});
        }
      }
    } else {
      while (pos < end && taken) {
        const std::size_t at = text.find(literal_, pos);
        pos = at == std::string_view::npos ? text.size() : at + literal_.size();
        if (at != std::string_view::npos) {
          taken = found({at, pos});
        }
      }
    }
    if (!taken) {
      return taken;
    }
  }
  return {};
}

Result<> Split::each(std::string_view text, const Sink& sink, const std::stop_token& stop) const {
  Joiner joiner(behavior_, sink);
  std::size_t done = 0;
  const auto take = [&](const Span& match) -> Result<> {
    if (done != match.begin) {
      if (Result<> taken = joiner.take({done, match.begin}, invert_); !taken) {
        return taken;
      }
    }
    done = match.end;
    return joiner.take(match, !invert_);
  };
  if (Result<> found = find(text, take, stop); !found) {
    return found;
  }
  if (done != text.size()) {
    if (Result<> taken = joiner.take({done, text.size()}, invert_); !taken) {
      return taken;
    }
  }
  return joiner.finish();
}

Result<> Split::apply(std::string_view text, std::size_t base, std::vector<Span>& out,
                      const std::stop_token& stop) const {
  const auto append = [&](const Span& piece) -> Result<> {
    out.push_back({base + piece.begin, base + piece.end});
    return {};
  };
  return each(text, append, stop);
}

Split split_digits(bool individual) {
  static const CodePointTable numeric = membership(data::kNumeric, data::kNumericSize);
  return Split::from_characters(numeric,
                                individual ? SplitBehavior::Isolated : SplitBehavior::Contiguous);
}

}  // namespace fairlead::tokenizer
