#include "chat/line_command.hpp"

#include <fmt/format.h>

#include <iostream>

#include "base/json.hpp"
#include "base/lines.hpp"
#include "chat/chat_template.hpp"
#include "chat/messages.hpp"
#include "chat/model_files.hpp"
#include "jinja/template.hpp"

namespace fairlead::chat {
namespace {

std::unexpected<Error> bad(std::string message) {
  return fail(ErrorCode::InvalidRequest, std::move(message));
}

const json::Value* member(const json::Value& request, std::string_view name) {
  const json::Value* value = request.find(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

Result<> read_flag(const json::Value& request, std::string_view name, bool& out) {
  if (const json::Value* value = member(request, name)) {
    if (value->as_bool() == nullptr) {
      return bad(fmt::format("{} must be true or false", name));
    }
    out = *value->as_bool();
  }
  return {};
}

Result<> read_object(const json::Value& request, std::string_view name, json::Object& out) {
  if (const json::Value* value = member(request, name)) {
    if (value->as_object() == nullptr) {
      return bad(fmt::format("{} must be an object", name));
    }
    out = *value->as_object();
  }
  return {};
}

Result<> read_text(const json::Value& request, std::string_view name, std::string& out) {
  if (const json::Value* value = member(request, name)) {
    if (value->as_string() == nullptr) {
      return bad(fmt::format("{} must be a text", name));
    }
    out = *value->as_string();
  }
  return {};
}

Result<> read_continue(const json::Value& request, RenderRequest& out) {
  const json::Value* value = member(request, "continue_final_message");
  if (value != nullptr && value->as_string() != nullptr) {
    out.continue_final_message = true;
    out.continue_field = *value->as_string();
    return {};
  }
  return read_flag(request, "continue_final_message", out.continue_final_message);
}

Result<std::string> bare_template(const json::Value& request) {
  std::string source;
  std::string now;
  if (Result<> read = read_text(request, "template", source); !read) {
    return std::unexpected(read.error());
  }
  if (Result<> read = read_text(request, "now", now); !read) {
    return std::unexpected(read.error());
  }
  const json::Value* context = member(request, "context");
  const json::Value empty{json::Object()};
  auto parsed = jinja::Template::parse(std::move(source));
  if (!parsed) {
    return std::unexpected(std::move(parsed.error()));
  }
  jinja::Template::Options options;
  if (context != nullptr) {
    options.limits = jinja::Limits::for_input(text_bytes(*context));
  }
  if (!now.empty()) {
    options.now = now;
  }
  return (*parsed)->render(jinja::from_json(context != nullptr ? *context : empty), options);
}

Result<std::string> conversation(const ChatTemplate& model, json::Value& request) {
  RenderRequest out;
  out.normalize = false;
  std::string now;
  for (const Result<>& read :
       {read_continue(request, out), read_flag(request, "normalize", out.normalize),
        read_object(request, "chat_template_kwargs", out.kwargs),
        read_object(request, "special_tokens", out.special_tokens),
        read_text(request, "chat_template", out.template_override),
        read_text(request, "now", now)}) {
    if (!read) {
      return std::unexpected(read.error());
    }
  }
  out.add_generation_prompt = !out.continue_final_message;
  if (Result<> read = read_flag(request, "add_generation_prompt", out.add_generation_prompt);
      !read) {
    return std::unexpected(read.error());
  }
  if (!now.empty()) {
    out.now = now;
  }
  const auto copy = [&request](std::string_view name, json::Value& to) {
    if (const json::Value* value = member(request, name)) {
      to = *value;
    }
  };
  copy("messages", out.messages);
  copy("tools", out.tools);
  copy("documents", out.documents);
  return model.render(out);
}

Result<std::string> answer(const ChatTemplate& model, const std::string& line, bool cut) {
  if (cut) {
    return bad(fmt::format("the line is longer than {} bytes", kMaxRenderLine));
  }
  auto request = json::parse(line);
  if (!request) {
    return std::unexpected(std::move(request.error()));
  }
  if (request->as_object() == nullptr) {
    return bad("the line is not an object");
  }
  return request->find("template") != nullptr ? bare_template(*request)
                                              : conversation(model, *request);
}

Result<std::shared_ptr<const ChatTemplate>> load_model(const std::string& path) {
  if (path.empty()) {
    return ChatTemplate::make({}, {});
  }
  if (Result<> checked = check_model_folder(path); !checked) {
    return std::unexpected(checked.error());
  }
  auto loaded = ChatTemplate::load(path);
  return loaded && *loaded == nullptr ? ChatTemplate::make({}, {}) : loaded;
}

}  // namespace

int run_render(std::istream& in, std::ostream& out, const RenderOptions& options) {
  const auto model = load_model(options.model);
  if (!model) {
    std::cerr << "fairlead render: " << model.error().message << '\n';
    return 1;
  }
  std::string line;
  bool cut = false;
  while (read_line(in, kMaxRenderLine, line, cut)) {
    const Result<std::string> prompt = answer(**model, line, cut);
    std::string text;
    json::Writer writer(text);
    writer.begin_object();
    if (prompt) {
      writer.key("prompt").string(*prompt);
    } else {
      writer.key("error").string(prompt.error().message);
    }
    writer.end_object();
    out << text << std::endl;
  }
  return 0;
}

}  // namespace fairlead::chat
