#include "tokenizer/general_pre_tokenizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "tokenizer/component_config.hpp"
#include "tokenizer/piece_steps.hpp"

namespace fairlead::tokenizer {

namespace {

using Steps = std::vector<PieceStepPtr>;

Result<> add_bert(const ComponentConfig& /*config*/, Steps& steps) {
  steps.push_back(whitespace_split_step());
  steps.push_back(punctuation_step(SplitBehavior::Isolated));
  return {};
}

Result<> add_byte_level(const ComponentConfig& config, Steps& steps) {
  const Result<bool> prefix = config.flag("add_prefix_space");
  const Result<bool> regex = config.flag("use_regex", true);
  if (!prefix || !regex) {
    return std::unexpected(!prefix ? prefix.error() : regex.error());
  }
  steps.push_back(byte_level_pieces_step(*prefix, *regex));
  return {};
}

Result<> add_delimiter(const ComponentConfig& config, Steps& steps) {
  const Result<std::string_view> delimiter = config.character("delimiter");
  Result<Split> split = delimiter ? Split::from_string(*delimiter, SplitBehavior::Removed, false)
                                  : std::unexpected(delimiter.error());
  if (!split) {
    return std::unexpected(split.error());
  }
  steps.push_back(split_step(std::move(*split)));
  return {};
}

Result<> add_digits(const ComponentConfig& config, Steps& steps) {
  const Result<bool> individual = config.flag("individual_digits");
  if (!individual) {
    return std::unexpected(individual.error());
  }
  steps.push_back(split_step(split_digits(*individual)));
  return {};
}

Result<> add_fixed_length(const ComponentConfig& config, Steps& steps) {
  constexpr std::size_t kDefaultLength = 5;
  const Result<std::size_t> length = config.count("length", kDefaultLength);
  if (!length) {
    return std::unexpected(length.error());
  }
  if (*length == 0) {
    return config.bad("length must be at least 1");
  }
  steps.push_back(fixed_length_step(*length));
  return {};
}

Result<PrependScheme> prepend_scheme(const ComponentConfig& config) {
  constexpr std::pair<std::string_view, PrependScheme> kSchemes[] = {
      {"first", PrependScheme::First},
      {"never", PrependScheme::Never},
      {"always", PrependScheme::Always}};
  PrependScheme scheme = PrependScheme::Always;
  if (config.has("prepend_scheme")) {
    const Result<std::string_view> name = config.string("prepend_scheme");
    if (!name) {
      return std::unexpected(name.error());
    }
    const auto* it = std::ranges::find(kSchemes, *name, [](const auto& row) { return row.first; });
    if (it == std::end(kSchemes)) {
      return config.bad(fmt::format("prepend_scheme '{}' is unknown", *name));
    }
    scheme = it->second;
  }
  // What older files say instead; it must not contradict.
  if (config.has_value("add_prefix_space")) {
    const Result<bool> prefix = config.flag("add_prefix_space");
    if (!prefix) {
      return std::unexpected(prefix.error());
    }
    if (!*prefix && scheme != PrependScheme::Never) {
      return config.bad("add_prefix_space does not match prepend_scheme");
    }
  }
  return scheme;
}

Result<> add_metaspace(const ComponentConfig& config, Steps& steps) {
  const Result<std::string_view> replacement = config.character("replacement");
  const Result<PrependScheme> scheme = prepend_scheme(config);
  const Result<bool> split = config.has_value("split") ? config.flag("split") : Result<bool>(true);
  if (!replacement || !scheme) {
    return std::unexpected(!replacement ? replacement.error() : scheme.error());
  }
  if (!split) {
    return std::unexpected(split.error());
  }
  steps.push_back(metaspace_step(*replacement, *scheme, *split));
  return {};
}

Result<> add_punctuation(const ComponentConfig& config, Steps& steps) {
  const Result<SplitBehavior> how = config.has("behavior")
                                        ? read_behavior(config)
                                        : Result<SplitBehavior>(SplitBehavior::Isolated);
  if (!how) {
    return std::unexpected(how.error());
  }
  steps.push_back(punctuation_step(*how));
  return {};
}

Result<> add_split(const ComponentConfig& config, Steps& steps) {
  Result<Split> split = read_split(config, config.flag("invert"));
  if (!split) {
    return std::unexpected(split.error());
  }
  steps.push_back(split_step(std::move(*split)));
  return {};
}

Result<> add_scripts(const ComponentConfig& /*config*/, Steps& steps) {
  steps.push_back(scripts_step());
  return {};
}

Result<> add_whitespace(const ComponentConfig& /*config*/, Steps& steps) {
  steps.push_back(whitespace_step());
  return {};
}

Result<> add_whitespace_split(const ComponentConfig& /*config*/, Steps& steps) {
  steps.push_back(whitespace_split_step());
  return {};
}

constexpr std::pair<std::string_view, Result<> (*)(const ComponentConfig&, Steps&)> kTypes[] = {
    {"BertPreTokenizer", add_bert},
    {"ByteLevel", add_byte_level},
    {"CharDelimiterSplit", add_delimiter},
    {"Digits", add_digits},
    {"FixedLength", add_fixed_length},
    {"Metaspace", add_metaspace},
    {"Punctuation", add_punctuation},
    {"Split", add_split},
    {"UnicodeScripts", add_scripts},
    {"Whitespace", add_whitespace},
    {"WhitespaceSplit", add_whitespace_split},
};

// Takes one text through the steps, each piece to its end before the next begins.
class Run {
 public:
  Run(const Steps& steps, std::size_t size, const GeneralPreTokenizer::Sink& sink,
      const std::stop_token& stop)
      : steps_(steps),
        sink_(sink),
        stop_(stop),
        budget_(max_grown_size(size) * (steps.size() + 1)) {
    next_.reserve(steps.size());
    for (std::size_t i = 0; i < steps.size(); ++i) {
      next_.emplace_back([this, i](const Piece& piece) { return take(i + 1, piece); });
    }
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  Result<> take(std::size_t step, const Piece& piece) {
    if (piece.text.size() > budget_) {
      return grown_too_long();
    }
    budget_ -= piece.text.size();
    if (++pieces_ % kStopMatches == 0 && stop_.stop_requested()) {
      return stopped();
    }
    return step == steps_.size() ? sink_(piece.text)
                                 : steps_[step]->split(piece, next_[step], stop_);
  }

 private:
  const Steps& steps_;
  const GeneralPreTokenizer::Sink& sink_;
  const std::stop_token& stop_;
  std::vector<PieceSink> next_;  // of each step
  std::size_t budget_;           // bytes that may still go into a step
  std::size_t pieces_ = 0;
};

}  // namespace

Result<GeneralPreTokenizer> GeneralPreTokenizer::create(const json::Value& config) {
  GeneralPreTokenizer result;
  const auto add = [&](const ComponentConfig& step) { return result.add(step); };
  if (Result<> added = each_step("pre_tokenizer", "pretokenizers", config, add); !added) {
    return std::unexpected(added.error());
  }
  return result;
}

Result<> GeneralPreTokenizer::add(const ComponentConfig& config) {
  if (steps_.size() >= kMaxSteps) {
    return config.unsupported("too many steps");
  }
  for (const auto& [name, add_type] : kTypes) {
    if (name == config.type()) {
      return add_type(config, steps_);
    }
  }
  return config.unsupported("not a known type");
}

bool GeneralPreTokenizer::keeps_text() const {
  return std::ranges::all_of(steps_, [](const auto& step) { return step->keeps_text(); });
}

Result<> GeneralPreTokenizer::split(std::string_view text, std::size_t start_bytes,
                                    const Sink& sink, const std::stop_token& stop) const {
  if (text.empty()) {
    return {};
  }
  Run run(steps_, text.size(), sink, stop);
  return run.take(0, {text, std::min(start_bytes, text.size())});
}

}  // namespace fairlead::tokenizer
