#include "tokenizer/line_command.hpp"

#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "base/lines.hpp"
#include "tokenizer/incremental_decoder.hpp"
#include "tokenizer/length_rules.hpp"
#include "tokenizer/tokenizer.hpp"
#include "tokenizer/tokenizer_json.hpp"

namespace fairlead::tokenizer {

namespace {

std::unexpected<Error> bad(std::string message) {
  return fail(ErrorCode::InvalidRequest, std::move(message));
}

Result<bool> flag(const json::Value& request, std::string_view name, bool fallback) {
  const json::Value* value = request.find(name);
  if (value == nullptr || value->is_null()) {
    return fallback;
  }
  if (value->as_bool() == nullptr) {
    return bad(fmt::format("{} must be true or false", name));
  }
  return *value->as_bool();
}

Result<std::vector<TokenId>> ids(const json::Value& request, std::string_view name, bool required) {
  std::vector<TokenId> result;
  const json::Value* value = request.find(name);
  if (value == nullptr || value->is_null()) {
    return required ? Result<std::vector<TokenId>>(bad(fmt::format("{} is missing", name)))
                    : result;
  }
  if (value->as_array() == nullptr) {
    return bad(fmt::format("{} must be a list of token ids", name));
  }
  for (const json::Value& element : *value->as_array()) {
    const std::int64_t* id = element.as_int();
    if (id == nullptr || *id < 0 || *id > UINT32_MAX) {
      return bad(fmt::format("{} must be a list of token ids", name));
    }
    result.push_back(static_cast<TokenId>(*id));
  }
  return result;
}

Result<std::string> encode_line(const Tokenizer& tokenizer, const json::Value& request) {
  const json::Value* text = request.find("text");
  if (text == nullptr || text->as_string() == nullptr) {
    return bad("text must be a string");
  }
  const Result<bool> specials = flag(request, "add_special_tokens", true);
  if (!specials) {
    return std::unexpected(specials.error());
  }
  std::vector<TokenId> encoded;
  if (Result<> done = tokenizer.encode(*text->as_string(), *specials, encoded); !done) {
    return std::unexpected(done.error());
  }
  const AddedIds& around = tokenizer.ids_around();
  if (Result<> done =
          apply_length_rules(tokenizer.length_rules(), *specials ? around.before.size() : 0,
                             *specials ? around.behind.size() : 0, encoded);
      !done) {
    return std::unexpected(done.error());
  }
  std::string answer;
  json::Writer writer(answer);
  writer.begin_object().key("ids").begin_array();
  for (const TokenId id : encoded) {
    writer.unsigned_integer(id);
  }
  writer.end_array().end_object();
  return answer;
}

Result<std::string> decode_line(const Tokenizer& tokenizer, const json::Value& request) {
  const Result<std::vector<TokenId>> tokens = ids(request, "ids", true);
  const Result<std::vector<TokenId>> prompt = ids(request, "prompt_ids", false);
  const Result<bool> skip = flag(request, "skip_special_tokens", false);
  if (!tokens || !prompt || !skip) {
    return std::unexpected(!tokens ? tokens.error() : !prompt ? prompt.error() : skip.error());
  }
  std::string answer;
  json::Writer writer(answer);
  writer.begin_object().key("text").string(tokenizer.decode(*tokens, *skip));
  writer.key("deltas").begin_array();
  IncrementalDecoder decoder(tokenizer, *skip, *prompt);
  std::string delta;
  for (const TokenId id : *tokens) {
    delta.clear();
    decoder.push(id, delta);
    writer.string(delta);
  }
  delta.clear();
  decoder.flush(delta);
  writer.string(delta).end_array().end_object();
  return answer;
}

Result<std::string> answer_line(const Tokenizer& tokenizer, const std::string& line, bool cut,
                                bool decode) {
  if (cut) {
    return bad(fmt::format("the line is longer than {} bytes", kMaxLineBytes));
  }
  const Result<json::Value> request = json::parse(line);
  if (!request) {
    return std::unexpected(request.error());
  }
  if (request->as_object() == nullptr) {
    return bad("the line is not an object");
  }
  return decode ? decode_line(tokenizer, *request) : encode_line(tokenizer, *request);
}

}  // namespace

int run_tokenize(std::istream& in, std::ostream& out, const TokenizeOptions& options) {
  const Result<std::shared_ptr<const Tokenizer>> tokenizer = Tokenizer::load(options.model);
  if (!tokenizer) {
    std::cerr << "fairlead tokenize: " << tokenizer.error().message << '\n';
    return 1;
  }
  std::string line;
  bool cut = false;
  while (read_line(in, kMaxLineBytes, line, cut)) {
    const Result<std::string> answer = answer_line(**tokenizer, line, cut, options.decode);
    std::string text;
    if (!answer) {
      json::Writer(text).begin_object().key("error").string(answer.error().message).end_object();
    }
    out << (answer ? *answer : text) << std::endl;
  }
  return 0;
}

}  // namespace fairlead::tokenizer
