#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "tokenizer/decoder_step.hpp"
#include "tokenizer/utf8_valid.hpp"

namespace fairlead::tokenizer {

namespace {

namespace step = decoder_step;

constexpr int kMaxNesting = 16;
// Bounds what a stream costs to set up.
constexpr std::size_t kMaxSteps = 64;
// Bytes of text that one byte of a token may become.
constexpr double kMaxGrowth = 4096;

std::unexpected<Error> bad(std::string_view message) {
  return fail(ErrorCode::InvalidRequest, fmt::format("tokenizer.json: decoder: {}", message),
              "decoder");
}

std::unexpected<Error> unsupported(std::string_view what) {
  return fail(ErrorCode::UnsupportedField,
              fmt::format("tokenizer.json: decoder: '{}' is not supported", what), "decoder");
}

const std::string* text_member(const json::Value& config, std::string_view name) {
  const json::Value* value = config.find(name);
  return value != nullptr ? value->as_string() : nullptr;
}

bool is_one_character(const std::string* text) {
  return text != nullptr && !text->empty() &&
         character_length(static_cast<unsigned char>(text->front())) == text->size();
}

// A number that the reference keeps in 64 unsigned bits.
std::optional<std::size_t> count_member(const json::Value& config, std::string_view name) {
  constexpr std::string_view kMost = "18446744073709551615";
  const json::Value* value = config.find(name);
  if (value == nullptr) {
    return std::nullopt;
  }
  if (const std::int64_t* number = value->as_int()) {
    return *number >= 0 ? std::optional(static_cast<std::size_t>(*number)) : std::nullopt;
  }
  const auto* big = std::get_if<json::BigInt>(&value->storage());
  if (big == nullptr || big->digits.starts_with('-') || big->digits.size() > kMost.size() ||
      (big->digits.size() == kMost.size() && big->digits > kMost)) {
    return std::nullopt;
  }
  return std::numeric_limits<std::size_t>::max();
}

// Adds what Rust's `str::replace` does.
void add_replace(const std::string& pattern, std::string content, bool in_empty_tokens,
                 std::vector<DecoderStep>& steps) {
  if (pattern.empty()) {
    steps.emplace_back(step::Intersperse{std::move(content), in_empty_tokens});
  } else {
    steps.emplace_back(step::Replace{Literal(pattern), std::move(content)});
  }
}

Result<> add_replace(const json::Value& config, std::vector<DecoderStep>& steps) {
  const json::Value* pattern = config.find("pattern");
  const std::string* content = text_member(config, "content");
  if (content == nullptr || pattern == nullptr || pattern->as_object() == nullptr ||
      pattern->as_object()->size() != 1) {
    return bad("Replace needs a 'pattern' of one kind and a 'content'");
  }
  if (const std::string* literal = text_member(*pattern, "String")) {
    add_replace(*literal, *content, false, steps);
    return {};
  }
  const std::string* regex = text_member(*pattern, "Regex");
  if (regex == nullptr) {
    return bad("the pattern of Replace is neither String nor Regex");
  }
  Result<Regex> compiled = Regex::compile(*regex);
  if (!compiled) {
    return fail(compiled.error().code,
                fmt::format("tokenizer.json: decoder: Replace: {}", compiled.error().message),
                "decoder");
  }
  steps.emplace_back(step::RegexReplace{std::move(*compiled), *content});
  return {};
}

Result<> add_strip(const json::Value& config, std::vector<DecoderStep>& steps) {
  const std::string* content = text_member(config, "content");
  const std::optional<std::size_t> start = count_member(config, "start");
  const std::optional<std::size_t> stop = count_member(config, "stop");
  if (!is_one_character(content) || !start || !stop) {
    return bad("Strip needs one character 'content' and two numbers 'start' and 'stop'");
  }
  steps.emplace_back(step::Strip{*content, *start, *stop});
  return {};
}

Result<> add_word_piece(const json::Value& config, std::vector<DecoderStep>& steps) {
  const std::string* prefix = text_member(config, "prefix");
  const json::Value* cleanup = config.find("cleanup");
  if (prefix == nullptr || cleanup == nullptr || cleanup->as_bool() == nullptr) {
    return bad("WordPiece needs a 'prefix' and 'cleanup' true or false");
  }
  steps.emplace_back(step::Join{*prefix});
  if (*cleanup->as_bool()) {
    steps.emplace_back(step::Cleanup{});
  }
  return {};
}

Result<> add_metaspace(const json::Value& config, std::vector<DecoderStep>& steps) {
  const std::string* replacement = text_member(config, "replacement");
  if (!is_one_character(replacement)) {
    return bad("Metaspace needs one character 'replacement'");
  }
  std::string_view scheme = "always";
  if (const json::Value* value = config.find("prepend_scheme")) {
    scheme = value->as_string() != nullptr ? std::string_view(*value->as_string()) : "";
    if (scheme != "always" && scheme != "first" && scheme != "never") {
      return bad("the prepend_scheme of Metaspace is not one of always, first and never");
    }
  }
  // The older member may only repeat what the newer one says.
  if (const json::Value* older = config.find("add_prefix_space");
      older != nullptr && older->as_bool() != nullptr && !*older->as_bool() && scheme != "never") {
    return bad("Metaspace has add_prefix_space false and another prepend_scheme");
  }
  steps.emplace_back(step::Metaspace{Literal(*replacement), scheme != "never"});
  return {};
}

Result<> add_ctc(const json::Value& config, std::vector<DecoderStep>& steps) {
  const std::string* pad = text_member(config, "pad_token");
  const std::string* delimiter = text_member(config, "word_delimiter_token");
  const json::Value* cleanup = config.find("cleanup");
  if (pad == nullptr || delimiter == nullptr || cleanup == nullptr ||
      cleanup->as_bool() == nullptr) {
    return bad("CTC needs a 'pad_token', a 'word_delimiter_token' and 'cleanup' true or false");
  }
  steps.emplace_back(step::DropRepeated{});
  if (!pad->empty()) {
    add_replace(*pad, "", true, steps);
  }
  if (*cleanup->as_bool()) {
    steps.emplace_back(step::Cleanup{});
    add_replace(*delimiter, " ", true, steps);
  }
  steps.emplace_back(step::DropEmpty{});
  return {};
}

Result<> add(const json::Value& config, int depth, std::vector<DecoderStep>& steps);

Result<> add_sequence(const json::Value& config, int depth, std::vector<DecoderStep>& steps) {
  const json::Value* list = config.find("decoders");
  if (list == nullptr || list->as_array() == nullptr) {
    return bad("Sequence needs a list 'decoders'");
  }
  if (depth == kMaxNesting) {
    return unsupported("Sequence nested too deeply");
  }
  for (const json::Value& item : *list->as_array()) {
    if (Result<> added = add(item, depth + 1, steps); !added) {
      return added;
    }
    if (steps.size() > kMaxSteps) {
      return unsupported(fmt::format("Sequence of more than {} steps", kMaxSteps));
    }
  }
  return {};
}

Result<> add(const json::Value& config, int depth, std::vector<DecoderStep>& steps) {
  // The reference takes whatever has a suffix for a BPEDecoder.
  if (const std::string* suffix = text_member(config, "suffix")) {
    steps.emplace_back(
        step::WordEnd{suffix->empty() ? std::nullopt : std::optional<Literal>(*suffix)});
    return {};
  }
  const std::string* type = text_member(config, "type");
  if (type == nullptr) {
    return bad("a decoder without a type");
  }
  if (*type == "ByteFallback") {
    steps.emplace_back(step::ByteFallback{});
  } else if (*type == "ByteLevel") {
    steps.emplace_back(step::ByteLevel{});
  } else if (*type == "Fuse") {
    steps.emplace_back(step::Fuse{});
  } else if (*type == "BPEDecoder") {
    return bad("BPEDecoder needs a 'suffix'");
  } else {
    using Add = Result<> (*)(const json::Value&, std::vector<DecoderStep>&);
    constexpr std::pair<std::string_view, Add> kTypes[] = {{"CTC", add_ctc},
                                                           {"Metaspace", add_metaspace},
                                                           {"Replace", add_replace},
                                                           {"Strip", add_strip},
                                                           {"WordPiece", add_word_piece}};
    for (const auto& [name, add_type] : kTypes) {
      if (*type == name) {
        return add_type(config, steps);
      }
    }
    return *type == "Sequence" ? add_sequence(config, depth, steps) : Result<>(unsupported(*type));
  }
  return {};
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
  if (Result<> added = add(config, 0, steps); !added) {
    return std::unexpected(added.error());
  }
  double total = 1.0;
  for (const DecoderStep& one : steps) {
    total *= growth(one);
  }
  if (total > kMaxGrowth) {
    return unsupported(fmt::format("Replace that lengthens a text more than {}-fold", kMaxGrowth));
  }
  return steps;
}

}  // namespace fairlead::tokenizer
