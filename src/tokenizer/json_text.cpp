#include "tokenizer/json_text.hpp"

#include <fmt/format.h>
#include <simdjson.h>

namespace fairlead::tokenizer {

namespace {

namespace ondemand = simdjson::ondemand;

std::unexpected<Error> bad(std::string_view file, simdjson::error_code code,
                           std::string part = {}) {
  return fail(ErrorCode::InvalidRequest,
              fmt::format("{}: {}{}{}", file, part, part.empty() ? "" : ": ",
                          simdjson::error_message(code)),
              std::move(part));
}

}  // namespace

Result<> each_member(const JsonText& text,
                     const std::function<Result<>(const std::string&, const JsonText&)>& visit,
                     std::string_view file) {
  ondemand::parser parser;
  ondemand::document document;
  ondemand::object object;
  if (const auto code =
          parser.iterate(simdjson::padded_string_view(text.json, text.capacity)).get(document)) {
    return bad(file, code);
  }
  if (const auto code = document.get_object().get(object)) {
    return bad(file, code);
  }
  const char* limit = text.json.data() + text.capacity;
  for (auto result : object) {
    ondemand::field field;
    std::string_view key;
    std::string_view json;
    if (const auto code = std::move(result).get(field)) {
      return bad(file, code);
    }
    if (const auto code = field.unescaped_key().get(key)) {
      return bad(file, code);
    }
    const std::string name(key);
    if (const auto code = simdjson::to_json_string(field.value()).get(json)) {
      return bad(file, code, name);
    }
    if (Result<> visited = visit(name, {json, static_cast<std::size_t>(limit - json.data())});
        !visited) {
      return visited;
    }
  }
  if (document.current_location().error() == simdjson::SUCCESS) {
    return fail(ErrorCode::InvalidRequest, fmt::format("{}: text behind the document", file));
  }
  return {};
}

}  // namespace fairlead::tokenizer
