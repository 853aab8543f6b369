#include "api/openai/tokenize.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <variant>

#include "api/openai/answer_hold.hpp"
#include "api/openai/request.hpp"
#include "base/json.hpp"

namespace fairlead::api::openai {
namespace {

using Ids = std::vector<engine::TokenId>;

// So many tokens are written before bounds and the client's patience are looked at.
constexpr std::size_t kStep = 4096;
// Ids of one request: more than any context holds, and their text is made in one go.
constexpr std::size_t kMaxIds = std::size_t{1} << 22;
// Unknown fields that one error names.
constexpr std::size_t kMaxNamed = 64;

std::unexpected<Error> gone() {
  return fail(ErrorCode::ClientGone, "nobody waits for the answer any more");
}

std::unexpected<Error> invalid(std::string_view field, std::string_view rule) {
  return fail(ErrorCode::InvalidRequest, fmt::format("`{}` {}", field, rule), std::string(field));
}

/// Writes an array of one value per id, within the bounds of `hold`.
template <class Write>
Result<> write_each(json::Writer& writer, const std::string& out,
                    std::span<const engine::TokenId> ids, AnswerHold& hold,
                    const std::stop_token& stop, Write&& write) {
  writer.begin_array();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    write(ids[i]);
    if (i % kStep == kStep - 1 || i + 1 == ids.size()) {
      if (std::optional<Error> error = hold.hold(out.size())) {
        return std::unexpected(std::move(*error));
      }
      if (stop.stop_requested()) {
        return gone();
      }
    }
  }
  writer.end_array();
  return {};
}

Result<std::string> tokens_body(const ServedModel& served, const Ids& ids, bool spellings,
                                AnswerHold& hold, const std::stop_token& stop) {
  std::string out;
  json::Writer writer(out);
  const std::uint32_t context = context_length(served);
  writer.begin_object().key("count").unsigned_integer(ids.size()).key("max_model_len");
  context == 0 ? writer.null() : writer.unsigned_integer(context);
  writer.key("tokens");
  Result<> written = write_each(writer, out, ids, hold, stop,
                                [&](engine::TokenId id) { writer.unsigned_integer(id); });
  writer.key("token_strs");
  if (written && spellings) {
    const tokenizer::Tokenizer& tokenizer = *served.assets->tokenizer;
    written = write_each(writer, out, ids, hold, stop,
                         [&](engine::TokenId id) { writer.string(tokenizer.token_spelling(id)); });
  } else {
    writer.null();
  }
  if (!written) {
    return std::unexpected(std::move(written.error()));
  }
  writer.end_object();
  return out;
}

Result<std::string> encode_body(const PrepareInput& input, const std::string& body,
                                JsonReader& reader, const std::stop_token& stop, AnswerHold& hold,
                                std::string& model) {
  const Result<observe::Endpoint> form = find_endpoint(reader, body);
  if (!form) {
    return std::unexpected(form.error());
  }
  Result<RequestBody> request =
      parse_request(*form, reader, body, input.options, Purpose::Tokenize);
  if (!request) {
    return std::unexpected(std::move(request.error()));
  }
  if (stop.stop_requested()) {
    return gone();
  }
  const Result<const ServedModel*> served = find_served(input.models.get(), request->model, model);
  if (!served) {
    return std::unexpected(served.error());
  }
  const bool chat = *form == observe::Endpoint::ChatCompletions;
  Result<std::string> text =
      chat ? render_chat(**served, *request, stop)
           : Result<std::string>(std::get<std::string>(std::move(request->prompts.front())));
  if (!text) {
    return text;
  }
  Ids ids;
  if (Result<> encoded = (*served)->assets->tokenizer->encode(
          *text, request->add_special_tokens.value_or(!chat), ids, stop);
      !encoded) {
    encoded.error().param = chat ? "messages" : "prompt";
    return std::unexpected(std::move(encoded.error()));
  }
  return tokens_body(**served, ids, request->return_token_strs, hold, stop);
}

/// Ids without a token in the tokenizer are legal as long as the model has them.
Result<> check_known(const Ids& ids, const serving::ModelContext& assets) {
  const std::size_t size = std::max<std::size_t>(assets.vocab_size, assets.tokenizer->vocab_size());
  const auto wrong = std::ranges::find_if(ids, [&](engine::TokenId id) { return id >= size; });
  return wrong == ids.end()
             ? Result<>()
             : invalid(fmt::format("tokens[{}]", wrong - ids.begin()),
                       fmt::format("is out of vocabulary: {}; its size is {}", *wrong, size));
}

Result<std::string> decode_body(const PrepareInput& input, const std::string& body,
                                JsonReader& reader, const std::stop_token& stop, AnswerHold& hold,
                                std::string& model) {
  const Result<DetokenizeBody> request = parse_detokenize(reader, body, input.options);
  if (!request) {
    return std::unexpected(request.error());
  }
  if (stop.stop_requested()) {
    return gone();
  }
  const Result<const ServedModel*> served = find_served(input.models.get(), request->model, model);
  if (!served) {
    return std::unexpected(served.error());
  }
  const serving::ModelContext& assets = *(*served)->assets;
  if (Result<> known = check_known(request->tokens, assets); !known) {
    return std::unexpected(std::move(known.error()));
  }
  // Two bytes of the body may name a token of hundreds: this is known before it is built.
  std::size_t bytes = 0;
  for (const engine::TokenId id : request->tokens) {
    bytes += assets.tokenizer->token_bytes(id).size();
  }
  if (std::optional<Error> error = hold.hold(bytes)) {
    return std::unexpected(std::move(*error));
  }
  std::string out;
  json::Writer(out)
      .begin_object()
      .key("prompt")
      .string(assets.tokenizer->decode(request->tokens, false))
      .end_object();
  if (std::optional<Error> error = hold.hold(out.size())) {
    return std::unexpected(std::move(*error));
  }
  return out;
}

// What `make` answers, with its share of the memory for answers.
template <class Make>
TokenAnswer answer_by(Make&& make, const PrepareInput& input, const serving::ServiceOptions& bounds,
                      const std::string& body, JsonReader& reader, const std::stop_token& stop) {
  TokenAnswer out;
  AnswerHold hold(bounds, AnswerKind::Tokens);
  out.body = make(input, body, reader, stop, hold, out.model);
  out.share = hold.take_share();
  return out;
}

// The token id at hand.
engine::TokenId take_id(JsonReader& reader, std::size_t index) {
  const JsonType type = reader.type();
  const JsonNumber number = type == JsonType::Number ? reader.number() : JsonNumber{};
  if (!number.integral || number.integer < 0 ||
      number.integer > std::numeric_limits<engine::TokenId>::max()) {
    reader.fail(invalid(fmt::format("tokens[{}]", index),
                        fmt::format("must be a token id, a whole number from 0 to {}",
                                    std::numeric_limits<engine::TokenId>::max()))
                    .error());
    return 0;
  }
  return static_cast<engine::TokenId>(number.integer);
}

}  // namespace

Result<DetokenizeBody> parse_detokenize(JsonReader& reader, const std::string& body,
                                        const ApiOptions& options) {
  DetokenizeBody out;
  bool given = false;
  std::vector<std::string> unknown;
  const Result<> read = reader.read(body, [&](std::string_view key) {
    const JsonType type = reader.type();
    if (key == "model") {
      out.model.clear();
      if (type == JsonType::Null) {
        reader.null();
      } else if (type == JsonType::String) {
        out.model = reader.string();
      } else {
        reader.fail(invalid(key, fmt::format("must be a string, not {}", type_name(type))).error());
      }
    } else if (key == "tokens") {
      out.tokens.clear();
      given = type == JsonType::Array;
      if (given) {
        reader.array([&](std::size_t index) {
          out.tokens.push_back(take_id(reader, index));
          if (index == kMaxIds) {
            reader.fail(invalid(key, fmt::format("has more than {} ids", kMaxIds)).error());
          }
        });
      } else {
        reader.fail(
            invalid(key, fmt::format("must be an array of token ids, not {}", type_name(type)))
                .error());
      }
    } else {
      if (unknown.size() < kMaxNamed && std::ranges::find(unknown, key) == unknown.end()) {
        unknown.emplace_back(key.substr(0, 128));
      }
      reader.skip();
    }
  });
  if (!read) {
    return std::unexpected(read.error());
  }
  if (!unknown.empty() && !options.ignore_unsupported_fields) {
    return fail(ErrorCode::UnsupportedField,
                fmt::format("Unsupported parameter(s): `{}`", fmt::join(unknown, "`, `")),
                unknown.front());
  }
  if (!given) {
    return invalid("tokens", "is required");
  }
  return out;
}

TokenAnswer tokenize(const PrepareInput& input, const serving::ServiceOptions& bounds,
                     const std::string& body, JsonReader& reader, const std::stop_token& stop) {
  return answer_by(encode_body, input, bounds, body, reader, stop);
}

TokenAnswer detokenize(const PrepareInput& input, const serving::ServiceOptions& bounds,
                       const std::string& body, JsonReader& reader, const std::stop_token& stop) {
  return answer_by(decode_body, input, bounds, body, reader, stop);
}

}  // namespace fairlead::api::openai
