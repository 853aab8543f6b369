#include "api/openai/request_parser.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "engine/extra_args.hpp"

namespace fairlead::api::openai {
namespace {

constexpr std::int64_t kMaxCount = std::numeric_limits<std::int32_t>::max();

bool blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

}  // namespace

RequestParser::RequestParser(observe::Endpoint endpoint, JsonReader& reader,
                             const ApiOptions& options, Purpose purpose)
    : reader_(reader),
      options_(options),
      purpose_(purpose),
      where_(endpoint == observe::Endpoint::ChatCompletions ? kChat : kCompletions) {
  body_.endpoint = endpoint;
}

Result<RequestBody> RequestParser::parse(const std::string& body) {
  Result<> read = reader_.read(body, [this](std::string_view key) { on_member(key); });
  if (read && !unknown_.empty() && !options_.ignore_unsupported_fields) {
    return fairlead::fail(
        ErrorCode::UnsupportedField,
        fmt::format("Unsupported parameter(s): `{}`", fmt::join(unknown_, "`, `")),
        unknown_.front());
  }
  if (read) {
    read = check_whole();
  }
  if (!read) {
    return std::unexpected(read.error());
  }
  return std::move(body_);
}

void RequestParser::on_member(std::string_view key) {
  if (const Field* field = find_field(key, tokenizes() ? where_ | kTokenize : where_)) {
    const bool read = !tokenizes() || (field->where & (kPrompt | kTokenize)) != 0;
    read ? (this->*field->read)(field->name) : reader_.skip();
    return;
  }
  // Dropping one of these could hide that a client tried; nothing is dropped, whatever the options.
  if (engine::is_connector_argument(key) && reader_.type() != JsonType::Null) {
    return unsupported(key.substr(0, 128), "only the server sets it");
  }
  // A body of nothing but unknown keys must not become an answer of megabytes.
  constexpr std::size_t kMaxNamed = 64;
  if (unknown_.size() < kMaxNamed && std::ranges::find(unknown_, key) == unknown_.end()) {
    unknown_.emplace_back(key.substr(0, 128));
  }
  reader_.skip();
}

Result<> RequestParser::check_whole() {
  const auto bad = [](std::string message, std::string param) {
    return fairlead::fail(ErrorCode::InvalidRequest, std::move(message), std::move(param));
  };
  if (blank(body_.model) && !(tokenizes() && body_.model.empty())) {
    return bad("`model` is required and must not be blank", "model");
  }
  if (where_ == kChat && !has_messages_) {
    return bad("`messages` is required", "messages");
  }
  if (where_ == kCompletions && !has_prompt_) {
    return bad("`prompt` is required", "prompt");
  }
  if (has_stream_options_ && !body_.stream) {
    return bad("`stream_options` is only allowed when `stream` is true", "stream_options");
  }
  if (options_.force_include_usage && body_.stream) {
    body_.include_usage = true;
  }
  if (best_of_ && *best_of_ != body_.n) {
    return fairlead::fail(ErrorCode::UnsupportedField,
                          "`best_of` is not supported unless it equals `n`", "best_of");
  }
  if (body_.continue_final_message && body_.add_generation_prompt) {
    return bad("`continue_final_message` needs `add_generation_prompt` to be false",
               "continue_final_message");
  }
  if (tokenizes()) {
    return {};
  }
  if (body_.prompts.size() * body_.n > kMaxChoices) {
    return bad(fmt::format("{} prompts × `n` = {} are more than {} choices", body_.prompts.size(),
                           body_.n, kMaxChoices),
               "n");
  }
  const std::size_t choices = std::max<std::size_t>(body_.prompts.size(), 1) * body_.n;
  if (body_.allowed_token_ids.size() * choices > kMaxAllowedIds) {
    return bad(fmt::format("`allowed_token_ids` must hold at most {} ids for {} choices",
                           kMaxAllowedIds / choices, choices),
               "allowed_token_ids");
  }
  if (Result<> total = check_xargs_total(choices); !total) {
    return total;
  }
  if (max_completion_tokens_) {
    body_.max_tokens = max_completion_tokens_;
  }
  if (body_.max_tokens && body_.min_tokens > *body_.max_tokens) {
    return bad(fmt::format("`min_tokens` ({}) must not exceed `max_tokens` ({})", body_.min_tokens,
                           *body_.max_tokens),
               "min_tokens");
  }
  if (Result<> checked = check_token_fields(); !checked) {
    return checked;
  }
  body_.stop_token_ids.insert(body_.stop_token_ids.end(), stop_ids_.begin(), stop_ids_.end());
  if (!options_.disable_nvext) {
    body_.worker_id = decode_worker_id_ ? decode_worker_id_ : backend_instance_id_;
  } else {
    body_.data_parallel_rank.reset();
    body_.prefill_worker_id.reset();
    body_.prefill_rank.reset();
    body_.nvext_fields = {};
    body_.constraints = {};
  }
  if (!nvext_salt_.empty()) {
    body_.cache_salt = nvext_salt_;
  }
  return {};
}

bool RequestParser::take_null() {
  if (reader_.type() != JsonType::Null) {
    return false;
  }
  reader_.null();
  return true;
}

bool RequestParser::expect(std::string_view name, JsonType type) {
  const JsonType found = reader_.type();
  if (found == type) {
    return !reader_.failed();
  }
  invalid(name, fmt::format("`{}` must be {}, not {}", name, type_name(type), type_name(found)));
  return false;
}

void RequestParser::invalid(std::string_view name, std::string message) {
  reader_.fail({ErrorCode::InvalidRequest, std::move(message), std::string(name)});
}

void RequestParser::unsupported(std::string_view name, std::string_view what) {
  reader_.fail({ErrorCode::UnsupportedField,
                what.empty() ? fmt::format("`{}` is not supported", name)
                             : fmt::format("`{}` is not supported: {}", name, what),
                std::string(name)});
}

std::optional<bool> RequestParser::take_bool(std::string_view name) {
  if (take_null() || !expect(name, JsonType::Bool)) {
    return std::nullopt;
  }
  return reader_.boolean();
}

void RequestParser::take_bool_into(std::string_view name, bool& out, bool fallback) {
  out = take_bool(name).value_or(fallback);
}

std::optional<std::string> RequestParser::take_string(std::string_view name) {
  if (take_null() || !expect(name, JsonType::String)) {
    return std::nullopt;
  }
  return std::string(reader_.string());
}

std::optional<std::int64_t> RequestParser::take_integer(std::string_view name, std::int64_t minimum,
                                                        std::int64_t maximum) {
  if (take_null() || !expect(name, JsonType::Number)) {
    return std::nullopt;
  }
  const JsonNumber number = reader_.number();
  if (reader_.failed()) {
    return std::nullopt;
  }
  if (!number.integral && number.value > static_cast<double>(minimum) &&
      number.value < static_cast<double>(maximum)) {
    invalid(name, fmt::format("`{}` must be a whole number", name));
    return std::nullopt;
  }
  if (!number.integral || number.integer < minimum || number.integer > maximum) {
    if (maximum == kMaxCount || maximum == std::numeric_limits<std::int64_t>::max()) {
      invalid(name, number.value < static_cast<double>(minimum)
                        ? fmt::format("`{}` must be at least {}", name, minimum)
                        : fmt::format("`{}` is too large", name));
    } else {
      invalid(name, fmt::format("`{}` must be from {} to {}", name, minimum, maximum));
    }
    return std::nullopt;
  }
  return number.integer;
}

std::optional<float> RequestParser::take_number(std::string_view name, double minimum,
                                                double maximum) {
  if (take_null() || !expect(name, JsonType::Number)) {
    return std::nullopt;
  }
  const JsonNumber number = reader_.number();
  if (reader_.failed()) {
    return std::nullopt;
  }
  if (number.value < minimum || number.value > maximum) {
    invalid(name, fmt::format("`{}` must be from {} to {}", name, minimum, maximum));
    return std::nullopt;
  }
  return static_cast<float>(number.value);
}

engine::TokenId RequestParser::token_id(std::string_view name) {
  if (!expect(name, JsonType::Number)) {
    return 0;
  }
  const JsonNumber number = reader_.number();
  if (!number.integral || number.integer < 0 ||
      number.integer > std::numeric_limits<std::uint32_t>::max()) {
    invalid(name, fmt::format("`{}` must hold token ids: whole numbers from 0", name));
    return 0;
  }
  return static_cast<engine::TokenId>(number.integer);
}

void RequestParser::token_ids(std::string_view name, std::vector<engine::TokenId>& out) {
  out.clear();
  if (take_null() || !expect(name, JsonType::Array)) {
    return;
  }
  reader_.array([&](std::size_t) { out.push_back(token_id(name)); });
}

void RequestParser::read_model(std::string_view name) {
  body_.model = take_string(name).value_or(std::string());
}

void RequestParser::read_messages(std::string_view name) {
  if (!expect(name, JsonType::Array)) {
    return;
  }
  body_.messages = reader_.value();
  if (reader_.failed()) {
    return;
  }
  if (Result<> checked = check_messages(body_.messages); !checked) {
    reader_.fail(std::move(checked.error()));
  }
  has_messages_ = true;
}

void RequestParser::read_prompt(std::string_view name) {
  body_.prompts.clear();
  has_prompt_ = false;
  if (take_null()) {
    return;
  }
  has_prompt_ = true;
  if (reader_.type() == JsonType::String) {
    body_.prompts.emplace_back(std::string(reader_.string()));
    return;
  }
  if (tokenizes()) {
    return invalid(name, "`prompt` must be a string");
  }
  if (reader_.type() != JsonType::Array) {
    return invalid(name, "`prompt` must be a string, or an array of strings or of token ids");
  }
  // The first element decides what the array is.
  std::optional<JsonType> kind;
  std::vector<engine::TokenId> ids;
  reader_.array([&](std::size_t index) {
    const JsonType found = reader_.type();
    if (!kind) {
      kind = found;
    }
    if (found != *kind ||
        (found != JsonType::Number && found != JsonType::String && found != JsonType::Array)) {
      return invalid(
          name, "`prompt` must hold only strings, only token ids, or only arrays of token ids");
    }
    if (found == JsonType::Number) {
      ids.push_back(token_id(name));
      return;
    }
    if (index >= kMaxChoices) {
      return invalid(name, fmt::format("`prompt` must hold at most {} prompts", kMaxChoices));
    }
    if (found == JsonType::String) {
      body_.prompts.emplace_back(std::string(reader_.string()));
      return;
    }
    std::vector<engine::TokenId> inner;
    reader_.array([&](std::size_t) { inner.push_back(token_id(name)); });
    if (inner.empty()) {
      return invalid(name, "`prompt` must not hold an empty array");
    }
    body_.prompts.emplace_back(std::move(inner));
  });
  if (!ids.empty()) {
    body_.prompts.emplace_back(std::move(ids));
  }
  if (body_.prompts.empty()) {
    invalid(name, "`prompt` must not be empty");
  }
}

void RequestParser::read_stream(std::string_view name) {
  take_bool_into(name, body_.stream, false);
}

void RequestParser::read_stream_options(std::string_view name) {
  body_.include_usage = body_.continuous_usage = has_stream_options_ = false;
  if (take_null() || !expect(name, JsonType::Object)) {
    return;
  }
  has_stream_options_ = true;
  reader_.object([this](std::string_view key) {
    if (key == "include_usage") {
      take_bool_into("stream_options.include_usage", body_.include_usage, false);
    } else if (key == "continuous_usage_stats") {
      take_bool_into("stream_options.continuous_usage_stats", body_.continuous_usage, false);
    } else {
      reader_.skip();
    }
  });
}

void RequestParser::read_n(std::string_view name) {
  body_.n = static_cast<std::uint32_t>(take_integer(name, 1, kMaxChoices).value_or(1));
}

void RequestParser::read_max_tokens(std::string_view name) {
  body_.max_tokens = take_integer(name, where_ == kChat ? 1 : 0, kMaxCount);
}

void RequestParser::read_max_completion_tokens(std::string_view name) {
  max_completion_tokens_ = take_integer(name, 1, kMaxCount);
}

void RequestParser::read_min_tokens(std::string_view name) {
  body_.min_tokens = static_cast<std::uint32_t>(take_integer(name, 0, kMaxCount).value_or(0));
}

void RequestParser::read_temperature(std::string_view name) {
  body_.temperature = take_number(name, 0, 2);
}

void RequestParser::read_top_p(std::string_view name) {
  body_.top_p = take_number(name, 0, 1);
  if (body_.top_p && *body_.top_p <= 0) {
    invalid(name, "`top_p` must be above 0 and at most 1");
  }
}

void RequestParser::read_top_k(std::string_view name) {
  const auto value = take_integer(name, -1, kMaxCount);
  body_.top_k.reset();
  if (value) {
    body_.top_k = static_cast<std::uint32_t>(std::max<std::int64_t>(*value, 0));
  }
}

void RequestParser::read_min_p(std::string_view name) { body_.min_p = take_number(name, 0, 1); }

void RequestParser::read_presence_penalty(std::string_view name) {
  body_.presence_penalty = take_number(name, -2, 2);
}

void RequestParser::read_frequency_penalty(std::string_view name) {
  body_.frequency_penalty = take_number(name, -2, 2);
}

void RequestParser::read_repetition_penalty(std::string_view name) {
  body_.repetition_penalty = take_number(name, 0, 1e6);
  if (body_.repetition_penalty && *body_.repetition_penalty <= 0) {
    invalid(name, "`repetition_penalty` must be above 0");
  }
}

void RequestParser::read_seed(std::string_view name) {
  body_.seed = take_integer(name, std::numeric_limits<std::int64_t>::min(),
                            std::numeric_limits<std::int64_t>::max());
}

void RequestParser::read_allowed_token_ids(std::string_view name) {
  const bool given = reader_.type() == JsonType::Array;
  token_ids(name, body_.allowed_token_ids);
  if (given && body_.allowed_token_ids.empty()) {
    invalid(name, "`allowed_token_ids` must not be empty");
  }
}

void RequestParser::read_bad_words_token_ids(std::string_view name) {
  body_.bad_words_token_ids.clear();
  if (take_null() || !expect(name, JsonType::Array)) {
    return;
  }
  std::size_t ids = 0;
  reader_.array([&](std::size_t index) {
    auto& word = body_.bad_words_token_ids.emplace_back();
    token_ids(name, word);
    ids += word.size();
    if (word.empty()) {
      invalid(name, "`bad_words_token_ids` must hold arrays of at least one token id");
    } else if (index >= kMaxBadWords || ids > kMaxBadWordsSize) {
      invalid(name,
              fmt::format("`bad_words_token_ids` must hold at most {} entries of {} ids in all",
                          kMaxBadWords, kMaxBadWordsSize));
    }
  });
}

void RequestParser::read_bad_words(std::string_view name) {
  body_.bad_words.clear();
  if (take_null() || !expect(name, JsonType::Array)) {
    return;
  }
  std::size_t bytes = 0;
  reader_.array([&](std::size_t index) {
    if (!expect(name, JsonType::String)) {
      return;
    }
    body_.bad_words.emplace_back(reader_.string());
    bytes += body_.bad_words.back().size();
    if (blank(body_.bad_words.back())) {
      invalid(name, "`bad_words` must not hold an empty string");
    } else if (index >= kMaxBadWords || bytes > kMaxBadWordsSize) {
      invalid(name, fmt::format("`bad_words` must hold at most {} entries of {} bytes in all",
                                kMaxBadWords, kMaxBadWordsSize));
    }
  });
}

void RequestParser::read_logit_bias(std::string_view name) {
  body_.logit_bias.clear();
  if (take_null() || !expect(name, JsonType::Object)) {
    return;
  }
  reader_.object([&](std::string_view key) {
    std::uint64_t id = 0;
    for (const char c : key) {
      id = c >= '0' && c <= '9' && id <= std::numeric_limits<std::uint32_t>::max()
               ? id * 10 + static_cast<std::uint64_t>(c - '0')
               : std::numeric_limits<std::uint64_t>::max() / 16;
    }
    if (key.empty() || id > std::numeric_limits<std::uint32_t>::max()) {
      return invalid(
          name, fmt::format("`logit_bias` keys must be token ids, not `{}`", key.substr(0, 64)));
    }
    if (!expect(name, JsonType::Number)) {
      return;
    }
    if (body_.logit_bias.size() >= kMaxBiases) {
      return invalid(name, fmt::format("`logit_bias` must hold at most {} entries", kMaxBiases));
    }
    const JsonNumber bias = reader_.number();
    if (bias.value < -100 || bias.value > 100) {
      return invalid(name, "`logit_bias` values must be from -100 to 100");
    }
    body_.logit_bias.emplace_back(static_cast<engine::TokenId>(id), static_cast<float>(bias.value));
  });
}

void RequestParser::read_stop(std::string_view name) {
  body_.stop.clear();
  stop_ids_.clear();
  if (take_null()) {
    return;
  }
  const auto add_text = [&] {
    body_.stop.emplace_back(reader_.string());
    if (body_.stop.back().empty()) {
      invalid(name, "`stop` must not hold an empty string");
    }
  };
  if (reader_.type() == JsonType::String) {
    return add_text();
  }
  if (reader_.type() != JsonType::Array) {
    return invalid(name, "`stop` must be a string, or an array of strings or of token ids");
  }
  reader_.array([&](std::size_t index) {
    if (index >= kMaxStops) {
      return invalid(name, fmt::format("`stop` must hold at most {} entries", kMaxStops));
    }
    if (reader_.type() == JsonType::Number && body_.stop.empty()) {
      stop_ids_.push_back(token_id(name));
    } else if (reader_.type() == JsonType::String && stop_ids_.empty()) {
      add_text();
    } else {
      invalid(name, "`stop` must hold only strings or only token ids");
    }
  });
}

void RequestParser::read_stop_token_ids(std::string_view name) {
  token_ids(name, body_.stop_token_ids);
  if (body_.stop_token_ids.size() > kMaxStopIds) {
    invalid(name, fmt::format("`stop_token_ids` must hold at most {} ids", kMaxStopIds));
  }
}

void RequestParser::read_ignore_eos(std::string_view name) {
  take_bool_into(name, body_.ignore_eos, false);
}

void RequestParser::read_include_stop(std::string_view name) {
  take_bool_into(name, body_.include_stop, false);
}

void RequestParser::read_skip_special_tokens(std::string_view name) {
  take_bool_into(name, body_.skip_special_tokens, true);
}

void RequestParser::read_add_special_tokens(std::string_view name) {
  body_.add_special_tokens = take_bool(name);
}

void RequestParser::read_truncate_prompt_tokens(std::string_view name) {
  if (tokenizes()) {  // what is left depends on what is to be generated
    return only_null(name);
  }
  body_.truncate_prompt_tokens = take_integer(name, -1, kMaxCount);
  if (body_.truncate_prompt_tokens == 0) {
    invalid(name, "`truncate_prompt_tokens` must be -1 or at least 1");
  }
}

void RequestParser::read_truncation_side(std::string_view name) {
  const auto side = take_string(name);
  body_.truncate_right = side == "right";
  if (side && *side != "left" && *side != "right") {
    invalid(name, "`truncation_side` must be `left` or `right`");
  }
}

void RequestParser::read_priority(std::string_view name) {
  body_.priority = static_cast<std::int32_t>(
      take_integer(name, std::numeric_limits<std::int32_t>::min(), kMaxCount).value_or(0));
}

void RequestParser::read_cache_salt(std::string_view name) {
  const auto salt = take_string(name);
  body_.cache_salt = salt.value_or(std::string());
  if (salt && (salt->empty() || salt->size() > kMaxSaltBytes)) {
    invalid(name, fmt::format("`{}` must be a string of 1 to {} bytes", name, kMaxSaltBytes));
  }
}

void RequestParser::read_session_id(std::string_view name) {
  body_.session_id = take_string(name).value_or(std::string());
  if (body_.session_id.size() > 1024) {
    invalid(name, "`session_id` must be at most 1024 bytes long");
  }
}

void RequestParser::read_request_id(std::string_view name) {
  body_.request_id = take_string(name).value_or(std::string());
  const auto printable = [](char c) { return c > ' ' && c <= '~'; };
  if (body_.request_id.size() > 256 || !std::ranges::all_of(body_.request_id, printable)) {
    invalid(name, "`request_id` must be at most 256 printable ASCII characters without blanks");
  }
}

void RequestParser::read_documents(std::string_view name) {
  body_.documents = {};
  if (take_null() || !expect(name, JsonType::Array)) {
    return;
  }
  body_.documents = reader_.value();
  if (reader_.failed()) {
    return;
  }
  for (const json::Value& document : *body_.documents.as_array()) {
    if (!document.as_object()) {
      return invalid(name, "`documents` must hold objects");
    }
  }
}

void RequestParser::read_template_kwargs(std::string_view name) {
  body_.template_kwargs = {};
  if (take_null() || !expect(name, JsonType::Object)) {
    return;
  }
  json::Value value = reader_.value();
  if (reader_.failed()) {
    return;
  }
  body_.template_kwargs = std::move(*value.as_object());
  if (body_.template_kwargs.find("chat_template")) {
    invalid(name, fmt::format("`{}` must not hold `chat_template`", name));
  }
}

void RequestParser::read_add_generation_prompt(std::string_view name) {
  take_bool_into(name, body_.add_generation_prompt, true);
}

void RequestParser::read_continue_final_message(std::string_view name) {
  take_bool_into(name, body_.continue_final_message, false);
}

Result<RequestBody> parse_request(observe::Endpoint endpoint, JsonReader& reader,
                                  const std::string& body, const ApiOptions& options,
                                  Purpose purpose) {
  return RequestParser(endpoint, reader, options, purpose).parse(body);
}

Result<observe::Endpoint> find_endpoint(JsonReader& reader, const std::string& body) {
  bool messages = false;
  bool prompt = false;
  const Result<> read = reader.read(body, [&](std::string_view key) {
    if (key == "messages") {
      messages = reader.type() != JsonType::Null;
    } else if (key == "prompt") {
      prompt = reader.type() != JsonType::Null;
    }
    reader.skip();
  });
  if (!read) {
    return std::unexpected(read.error());
  }
  if (messages == prompt) {
    return fail(ErrorCode::InvalidRequest,
                messages ? "Only one of `messages` (a chat) and `prompt` (completions) may be given"
                         : "One of `messages` (a chat) and `prompt` (completions) must be given",
                messages ? "prompt" : "messages");
  }
  return messages ? observe::Endpoint::ChatCompletions : observe::Endpoint::Completions;
}

}  // namespace fairlead::api::openai
