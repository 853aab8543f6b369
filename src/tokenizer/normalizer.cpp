#include "tokenizer/normalizer.hpp"

#include <utility>

#include "tokenizer/component_config.hpp"
#include "tokenizer/normalizer_steps.hpp"
#include "tokenizer/utf8_valid.hpp"

namespace fairlead::tokenizer {

namespace {

using Steps = std::vector<NormalizerStepPtr>;

// Beyond this nothing useful follows from the length of a text.
constexpr std::size_t kMaxShrink = 1024;

std::optional<NormalizationForm> form_of(std::string_view type) {
  constexpr std::pair<std::string_view, NormalizationForm> kForms[] = {
      {"NFC", NormalizationForm::C},
      {"NFD", NormalizationForm::D},
      {"NFKC", NormalizationForm::KC},
      {"NFKD", NormalizationForm::KD},
  };
  for (const auto& [name, form] : kForms) {
    if (name == type) {
      return form;
    }
  }
  return std::nullopt;
}

// Components without options.
NormalizerStepPtr plain_step(std::string_view type) {
  if (const auto form = form_of(type)) {
    return normalization_step(*form);
  }
  if (type == "Lowercase") {
    return lowercase_step();
  }
  if (type == "StripAccents") {
    return strip_accents_step();
  }
  if (type == "Nmt") {
    return nmt_step();
  }
  return type == "ByteLevel" ? byte_level_step() : nullptr;
}

Result<> add_bert(const ComponentConfig& config, Steps& steps) {
  const Result<bool> clean = config.flag("clean_text");
  const Result<bool> chinese = config.flag("handle_chinese_chars");
  const Result<bool> lowercase = config.flag("lowercase");
  for (const Result<bool>* flag : {&clean, &chinese, &lowercase}) {
    if (!*flag) {
      return std::unexpected(flag->error());
    }
  }
  bool accents = *lowercase;
  if (config.has_value("strip_accents")) {
    const Result<bool> given = config.flag("strip_accents");
    if (!given) {
      return std::unexpected(given.error());
    }
    accents = *given;
  }
  if (*clean) {
    steps.push_back(bert_clean_step());
  }
  if (*chinese) {
    steps.push_back(bert_chinese_step());
  }
  if (accents) {
    steps.push_back(normalization_step(NormalizationForm::D));
    steps.push_back(bert_accents_step());
  }
  if (*lowercase) {
    steps.push_back(lowercase_step());
  }
  return {};
}

Result<> add_strip(const ComponentConfig& config, Steps& steps) {
  const Result<bool> left = config.flag("strip_left");
  const Result<bool> right = config.flag("strip_right");
  if (!left || !right) {
    return std::unexpected(!left ? left.error() : right.error());
  }
  steps.push_back(strip_step(*left, *right));
  return {};
}

Result<> add_prepend(const ComponentConfig& config, Steps& steps) {
  const Result<std::string_view> prefix = config.string("prepend");
  if (!prefix) {
    return std::unexpected(prefix.error());
  }
  steps.push_back(prepend_step(*prefix));
  return {};
}

Result<> add_replace(const ComponentConfig& config, Steps& steps) {
  const Result<ComponentConfig::Pattern> pattern = config.pattern();
  const Result<std::string_view> content = config.string("content");
  if (!pattern || !content) {
    return std::unexpected(!pattern ? pattern.error() : content.error());
  }
  if (!pattern->is_regex && !pattern->text.empty()) {
    steps.push_back(replace_step(pattern->text, *content));
    return {};
  }
  // An empty literal matches as an empty regex does.
  Result<Regex> regex = Regex::compile(pattern->text);
  if (!regex) {
    return std::unexpected(config.wrap(regex.error()));
  }
  steps.push_back(replace_step(std::move(*regex), *content));
  return {};
}

Result<> add_precompiled(const ComponentConfig& config, Steps& steps) {
  const Result<std::string_view> text = config.string("precompiled_charsmap");
  if (!text) {
    return std::unexpected(text.error());
  }
  Result<Charsmap> map = Charsmap::from_base64(*text);
  if (!map) {
    return std::unexpected(config.wrap(map.error()));
  }
  steps.push_back(charsmap_step(std::move(*map)));
  return {};
}

}  // namespace

Result<Normalizer> Normalizer::create(const json::Value& config) {
  Normalizer result;
  const auto add = [&](const ComponentConfig& step) { return result.add(step); };
  if (Result<> added = each_step("normalizer", "normalizers", config, add); !added) {
    return std::unexpected(added.error());
  }
  return result;
}

Result<> Normalizer::add(const ComponentConfig& config) {
  const std::string_view type = config.type();
  if (steps_.size() >= kMaxSteps) {
    return config.unsupported("too many steps");
  }
  nfc_only_ = type == "NFC" && (steps_.empty() || nfc_only_);
  constexpr std::pair<std::string_view, Result<> (*)(const ComponentConfig&, Steps&)> kTypes[] = {
      {"BertNormalizer", add_bert},
      {"Strip", add_strip},
      {"Prepend", add_prepend},
      {"Replace", add_replace},
      {"Precompiled", add_precompiled}};
  for (const auto& [name, add_type] : kTypes) {
    if (name == type) {
      return add_type(config, steps_);
    }
  }
  NormalizerStepPtr step = plain_step(type);
  if (step == nullptr) {
    return config.unsupported("not a known type");
  }
  steps_.push_back(std::move(step));
  return {};
}

std::size_t Normalizer::shrinks() const {
  std::size_t all = 1;
  for (const NormalizerStepPtr& step : steps_) {
    const std::size_t one = step->shrinks();
    if (one == 0 || one > kMaxShrink / all) {
      return 0;
    }
    all *= one;
  }
  return all;
}

Result<> Normalizer::apply(std::string& text, const std::stop_token& stop) const {
  std::size_t start_bytes = 0;
  return apply(text, start_bytes, stop);
}

Result<> Normalizer::apply(std::string& text, std::size_t& start_bytes,
                           const std::stop_token& stop) const {
  NormalizedText work;
  work.text = std::move(text);
  work.start_bytes =
      work.text.empty() ? 0 : character_length(static_cast<unsigned char>(work.text[0]));
  const std::size_t limit = max_grown_size(work.text.size());
  for (const NormalizerStepPtr& step : steps_) {
    if (Result<> done = step->apply(work, stop); !done) {
      return done;
    }
    if (work.text.size() > limit) {
      return grown_too_long();
    }
    if (stop.stop_requested()) {
      return stopped();
    }
  }
  text = std::move(work.text);
  start_bytes = work.start_bytes;
  return {};
}

}  // namespace fairlead::tokenizer
