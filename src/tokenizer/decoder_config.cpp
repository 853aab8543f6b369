#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tokenizer/component_config.hpp"
#include "tokenizer/decoder_step.hpp"

namespace fairlead::tokenizer {

namespace {

namespace step = decoder_step;

constexpr std::string_view kPart = "decoder";
// Bytes of text that one byte of a token may become.
constexpr double kMaxDecoderGrowth = 4096;

using Steps = std::vector<DecoderStep>;

// Adds what Rust's `str::replace` does.
void replace(std::string_view pattern, std::string_view content, bool in_empty_tokens,
             Steps& steps) {
  if (pattern.empty()) {
    steps.emplace_back(step::Intersperse{std::string(content), in_empty_tokens});
  } else {
    steps.emplace_back(step::Replace{Literal(std::string(pattern)), std::string(content)});
  }
}

Result<> add_replace(const ComponentConfig& config, Steps& steps) {
  const Result<ComponentConfig::Pattern> pattern = config.pattern();
  if (!pattern) {
    return std::unexpected(pattern.error());
  }
  const Result<std::string_view> content = config.string("content");
  if (!content) {
    return std::unexpected(content.error());
  }
  if (!pattern->is_regex) {
    replace(pattern->text, *content, false, steps);
    return {};
  }
  Result<Regex> compiled = Regex::compile(pattern->text);
  if (!compiled) {
    return std::unexpected(config.wrap(compiled.error()));
  }
  steps.emplace_back(step::RegexReplace{std::move(*compiled), std::string(*content)});
  return {};
}

Result<> add_strip(const ComponentConfig& config, Steps& steps) {
  const Result<std::string_view> content = config.character("content");
  if (!content) {
    return std::unexpected(content.error());
  }
  const Result<std::size_t> start = config.count("start");
  const Result<std::size_t> stop = config.count("stop");
  if (!start || !stop) {
    return std::unexpected((start ? stop : start).error());
  }
  steps.emplace_back(step::Strip{std::string(*content), *start, *stop});
  return {};
}

Result<> add_word_piece(const ComponentConfig& config, Steps& steps) {
  const Result<std::string_view> prefix = config.string("prefix");
  if (!prefix) {
    return std::unexpected(prefix.error());
  }
  const Result<bool> cleanup = config.flag("cleanup");
  if (!cleanup) {
    return std::unexpected(cleanup.error());
  }
  steps.emplace_back(step::Join{std::string(*prefix)});
  if (*cleanup) {
    steps.emplace_back(step::Cleanup{});
  }
  return {};
}

Result<> add_metaspace(const ComponentConfig& config, Steps& steps) {
  const Result<std::string_view> replacement = config.character("replacement");
  if (!replacement) {
    return std::unexpected(replacement.error());
  }
  const Result<std::string_view> scheme =
      config.has("prepend_scheme") ? config.string("prepend_scheme") : "always";
  if (!scheme || (*scheme != "always" && *scheme != "first" && *scheme != "never")) {
    return config.bad("prepend_scheme is not one of always, first and never");
  }
  // The older member may only repeat what the newer one says; it is not looked at for its kind.
  const Result<bool> older = config.flag("add_prefix_space", true);
  if (older && !*older && *scheme != "never") {
    return config.bad("add_prefix_space false and another prepend_scheme");
  }
  steps.emplace_back(step::Metaspace{Literal(std::string(*replacement)), *scheme != "never"});
  return {};
}

Result<> add_ctc(const ComponentConfig& config, Steps& steps) {
  const Result<std::string_view> pad = config.string("pad_token");
  const Result<std::string_view> delimiter = config.string("word_delimiter_token");
  if (!pad || !delimiter) {
    return std::unexpected((pad ? delimiter : pad).error());
  }
  const Result<bool> cleanup = config.flag("cleanup");
  if (!cleanup) {
    return std::unexpected(cleanup.error());
  }
  steps.emplace_back(step::DropRepeated{});
  if (!pad->empty()) {
    replace(*pad, "", true, steps);
  }
  if (*cleanup) {
    steps.emplace_back(step::Cleanup{});
    replace(*delimiter, " ", true, steps);
  }
  steps.emplace_back(step::DropEmpty{});
  return {};
}

Result<> add_word_end(const ComponentConfig& config, Steps& steps) {
  const Result<std::string_view> suffix = config.string("suffix");
  if (!suffix) {
    return std::unexpected(suffix.error());
  }
  steps.emplace_back(
      step::WordEnd{suffix->empty() ? std::nullopt : std::optional<Literal>(std::string(*suffix))});
  return {};
}

template <typename Step>
Result<> add_plain(const ComponentConfig& /*config*/, Steps& steps) {
  steps.emplace_back(Step{});
  return {};
}

Result<> add(const ComponentConfig& config, Steps& steps) {
  if (steps.size() >= kMaxSteps) {
    return config.unsupported("too many steps");
  }
  using Add = Result<> (*)(const ComponentConfig&, Steps&);
  constexpr std::pair<std::string_view, Add> kTypes[] = {
      {"BPEDecoder", add_word_end},
      {"ByteFallback", add_plain<step::ByteFallback>},
      {"ByteLevel", add_plain<step::ByteLevel>},
      {"CTC", add_ctc},
      {"Fuse", add_plain<step::Fuse>},
      {"Metaspace", add_metaspace},
      {"Replace", add_replace},
      {"Strip", add_strip},
      {"WordPiece", add_word_piece}};
  for (const auto& [name, add_type] : kTypes) {
    if (config.type() == name) {
      return add_type(config, steps);
    }
  }
  // The reference takes whatever else has a suffix for a BPEDecoder.
  return config.string("suffix") ? add_word_end(config, steps)
                                 : config.unsupported("not a known type");
}

// By how much a step can lengthen a text.
double growth(const DecoderStep& any) {
  if (const auto* replace = std::get_if<step::Replace>(&any)) {
    return std::max(1.0, static_cast<double>(replace->content.size()) /
                             static_cast<double>(replace->literal.text().size()));
  }
  if (const auto* intersperse = std::get_if<step::Intersperse>(&any)) {
    return 1.0 + 2.0 * static_cast<double>(intersperse->content.size());
  }
  if (const auto* regex = std::get_if<step::RegexReplace>(&any)) {
    return 1.0 + 2.0 * static_cast<double>(regex->content.size());  // also for empty matches
  }
  if (const auto* end = std::get_if<step::WordEnd>(&any)) {
    return end->suffix ? 1.0 : 3.0;
  }
  return 1.0;
}

}  // namespace

Result<std::vector<DecoderStep>> read_decoder(const json::Value& config) {
  std::vector<DecoderStep> steps;
  if (config.is_null()) {
    steps.emplace_back(step::Join{std::nullopt});
    return steps;
  }
  if (Result<> read = each_step(kPart, "decoders", config,
                                [&](const ComponentConfig& one) { return add(one, steps); });
      !read) {
    return std::unexpected(read.error());
  }
  double total = 1.0;
  for (const DecoderStep& one : steps) {
    total *= growth(one);
  }
  if (total > kMaxDecoderGrowth) {
    return fail(
        ErrorCode::UnsupportedField,
        fmt::format("{}: Replace lengthens a text more than {}-fold", kPart, kMaxDecoderGrowth),
        std::string(kPart));
  }
  return steps;
}

}  // namespace fairlead::tokenizer
