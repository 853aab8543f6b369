#include "chat/chat_template.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "chat/messages.hpp"
#include "jinja/template.hpp"
#include "jinja/text.hpp"
#include "tokenizer/tokenizer_config.hpp"

namespace fairlead::chat {

struct ChatTemplate::Entry {
  std::string name;
  std::shared_ptr<const jinja::Template> code;
  TemplateTraits traits;
};

namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kMaxTemplateBytes = std::uintmax_t{8} << 20;

std::unexpected<Error> wrong(std::string message, std::string param = {}) {
  return fail(ErrorCode::InvalidRequest, std::move(message), std::move(param));
}

// The file's text; empty when it is not there.
Result<std::optional<std::string>> read_file(const fs::path& path) {
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  if (error) {
    return error == std::errc::no_such_file_or_directory
               ? Result<std::optional<std::string>>(std::nullopt)
               : wrong(fmt::format("cannot read {}: {}", path.string(), error.message()));
  }
  // tokenizer_config.json lists every added token, so it may be much larger than a template.
  if (bytes > 8 * kMaxTemplateBytes) {
    return wrong(fmt::format("{} has {} bytes, which no such file has", path.string(), bytes));
  }
  std::string text(bytes, '\0');
  std::ifstream in(path, std::ios::binary);
  if (!in.read(text.data(), static_cast<std::streamsize>(bytes))) {
    return wrong(fmt::format("cannot read {}", path.string()));
  }
  return text;
}

// A `chat_template` member: one source, or a list of `{name, template}`.
Result<ChatTemplate::Sources> from_member(const fs::path& file, const json::Value* member) {
  ChatTemplate::Sources sources;
  if (member == nullptr || member->is_null()) {
    return sources;
  }
  if (const std::string* source = member->as_string()) {
    sources.emplace_back("default", *source);
    return sources;
  }
  const auto add = [&sources](const std::string* name, const std::string* source) {
    if (name != nullptr && source != nullptr) {
      sources.emplace_back(*name, *source);
    }
    return name != nullptr && source != nullptr;
  };
  const auto text = [](const json::Value* value) {
    return value != nullptr ? value->as_string() : nullptr;
  };
  bool valid = member->as_array() != nullptr || member->as_object() != nullptr;
  if (const json::Array* list = member->as_array()) {
    for (const json::Value& item : *list) {
      valid = valid && add(text(item.find("name")), text(item.find("template")));
    }
  } else if (const json::Object* map = member->as_object()) {
    for (const auto& [name, source] : *map) {
      valid = valid && add(&name, source.as_string());
    }
  }
  if (!valid) {
    return wrong(fmt::format(
        "{}: `chat_template` must be a text or a list of objects with `name` and `template`",
        file.string()));
  }
  return sources;
}

Result<ChatTemplate::Sources> from_json_file(const fs::path& file, bool required_member) {
  const auto text = read_file(file);
  if (!text) {
    return std::unexpected(text.error());
  }
  if (!*text) {
    return ChatTemplate::Sources();
  }
  const auto document = json::parse(**text);
  if (!document) {
    return wrong(fmt::format("{}: {}", file.string(), document.error().message));
  }
  const json::Value* member = document->find("chat_template");
  if (member == nullptr && required_member) {
    return wrong(fmt::format("{} has no `chat_template`", file.string()));
  }
  return from_member(file, member);
}

Result<ChatTemplate::Sources> from_jinja_files(const fs::path& folder) {
  ChatTemplate::Sources sources;
  const auto main = read_file(folder / "chat_template.jinja");
  if (!main) {
    return std::unexpected(main.error());
  }
  if (*main) {
    sources.emplace_back("default", **main);
  }
  std::error_code error;
  std::vector<fs::path> more;
  for (const auto& file : fs::directory_iterator(folder / "additional_chat_templates", error)) {
    if (file.path().extension() == ".jinja") {
      more.push_back(file.path());
    }
  }
  std::ranges::sort(more);
  for (const fs::path& file : more) {
    const auto text = read_file(file);
    if (!text) {
      return std::unexpected(text.error());
    }
    sources.emplace_back(file.stem().string(), text->value_or(""));
  }
  return sources;
}

Result<ChatTemplate::Sources> find_sources(const fs::path& folder) {
  auto sources = from_jinja_files(folder);
  if (sources && sources->empty()) {
    sources = from_json_file(folder / "chat_template.json", true);
  }
  if (sources && sources->empty()) {
    sources = from_json_file(folder / "tokenizer_config.json", false);
  }
  return sources;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// `arguments is string`, however the arguments are reached.
bool tests_argument_text(std::string_view source) {
  for (std::string_view access : {"arguments", "arguments']", "arguments\"]"}) {
    for (std::string_view test : {" is string", " is not string"}) {
      if (contains(source, std::string(access) + std::string(test))) {
        return true;
      }
    }
  }
  return false;
}

// Probes with a message in both shapes; errors count as no output.
bool shows_only_parts(const jinja::Template& code) {
  constexpr std::string_view kProbe = "template_test";
  const auto shows = [&](const json::Value& content) {
    json::Object message;
    message.set("role", json::Value("user"));
    message.set("content", content);
    const json::Value messages(json::Array{json::Value(std::move(message))});
    const auto context = jinja::Value::dict({
        {jinja::Value::borrowed("messages"), jinja::from_json(messages)},
        {jinja::Value::borrowed("tools"), jinja::Value()},
        {jinja::Value::borrowed("documents"), jinja::Value()},
        {jinja::Value::borrowed("add_generation_prompt"), jinja::Value::boolean(false)},
        {jinja::Value::borrowed("bos_token"), jinja::Value::borrowed("")},
        {jinja::Value::borrowed("eos_token"), jinja::Value::borrowed("")},
    });
    const auto out = code.render(context, {});
    return out && contains(*out, kProbe);
  };
  json::Object part;
  part.set("type", json::Value("text"));
  part.set("text", json::Value(kProbe));
  return !shows(json::Value(kProbe)) &&
         shows(json::Value(json::Array{json::Value(std::move(part))}));
}

void remove_nul(std::string& text) {
  if (text.find('\0') != std::string::npos) {  // much faster than to move all characters
    std::erase(text, '\0');
  }
}

// Cuts the prompt after the text that is to be continued, as transformers does.
Result<std::string> cut_at_tag(std::string prompt, std::string_view final_text) {
  constexpr std::string_view kBareTag = kContinueTag.substr(0, kContinueTag.size() - 1);
  const std::string_view stripped = jinja::text::strip(final_text, jinja::text::Side::Both);
  const std::size_t at = prompt.rfind(kBareTag);
  if (!contains(prompt, stripped) || at == std::string::npos) {
    return wrong(
        "continue_final_message is set but the final message does not appear in the chat after "
        "applying the chat template! This can happen if the chat template deletes portions of the "
        "final message. Please verify the chat template and final message in your chat to ensure "
        "they are compatible.",
        "messages");
  }
  const bool spacing_kept =
      std::string_view(prompt).substr(at, kContinueTag.size()) == kContinueTag;
  prompt.resize(at);
  if (!spacing_kept) {
    // The template trimmed the message, so the space before the tag is not part of it.
    prompt.resize(jinja::text::strip(prompt, jinja::text::Side::Right).size());
  }
  return prompt;
}

}  // namespace

ChatTemplate::ChatTemplate() = default;
ChatTemplate::~ChatTemplate() = default;

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::load(const fs::path& folder) {
  const fs::path config_file = folder / "tokenizer_config.json";
  const auto config_text = read_file(config_file);
  if (!config_text) {
    return std::unexpected(config_text.error());
  }
  auto config = tokenizer::read_tokenizer_config(config_text->value_or(""));
  if (!config) {
    return wrong(fmt::format("{}: {}", config_file.string(), config.error().message));
  }
  return load(folder, std::move(config->special_tokens.named));
}

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::load(const fs::path& folder,
                                                               Sources special_tokens) {
  auto sources = find_sources(folder);
  if (!sources) {
    return std::unexpected(std::move(sources.error()));
  }
  if (sources->empty()) {
    return nullptr;
  }
  auto made = make(std::move(*sources), std::move(special_tokens));
  if (!made) {
    return wrong(fmt::format("{}: {}", folder.string(), made.error().message));
  }
  return made;
}

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::make(Sources templates,
                                                               Sources special_tokens) {
  std::shared_ptr<ChatTemplate> made(new ChatTemplate());
  for (auto& [name, source] : templates) {
    auto entry = analyse(name, std::move(source));
    if (!entry) {
      return wrong(fmt::format("chat template `{}`: {}", name, entry.error().message));
    }
    made->entries_.push_back(std::move(*entry));
  }
  made->special_tokens_ = std::move(special_tokens);
  return made;
}

Result<ChatTemplate::Entry> ChatTemplate::analyse(std::string name, std::string source) {
  auto code = jinja::Template::parse(std::move(source));
  if (!code) {
    return std::unexpected(std::move(code.error()));
  }
  Entry entry;
  entry.name = std::move(name);
  entry.code = std::move(*code);
  const std::string_view text = entry.code->source();
  entry.traits.accepts_argument_text = tests_argument_text(text);
  entry.traits.reads_reasoning = contains(text, "reasoning") || contains(text, "thinking");
  entry.traits.content = entry.code->loops_over_content() || shows_only_parts(*entry.code)
                             ? ContentFormat::Parts
                             : ContentFormat::Text;
  return entry;
}

Result<const ChatTemplate::Entry*> ChatTemplate::choose(const RenderRequest& request,
                                                        std::unique_ptr<Entry>& own) const {
  const auto named = [this](std::string_view name) {
    const auto found = std::ranges::find(entries_, name, &Entry::name);
    return found == entries_.end() ? nullptr : &*found;
  };
  if (!request.template_override.empty()) {
    if (const Entry* entry = named(request.template_override)) {
      return entry;
    }
    auto entry = analyse("chat_template", request.template_override);
    if (!entry) {
      return std::unexpected(std::move(entry.error()));
    }
    own = std::make_unique<Entry>(std::move(*entry));
    return own.get();
  }
  const bool tools = !request.tools.is_null();
  if (const Entry* entry = tools ? named("tool_use") : nullptr) {
    return entry;
  }
  if (const Entry* entry = named("default")) {
    return entry;
  }
  return wrong(entries_.empty()
                   ? "the model has no chat template"
                   : "This model has multiple chat templates with no default specified!");
}

Result<std::string> ChatTemplate::render(const RenderRequest& request) const {
  std::unique_ptr<Entry> own;
  const auto entry = choose(request, own);
  if (!entry) {
    return std::unexpected(entry.error());
  }
  if (request.continue_final_message && request.add_generation_prompt) {
    return wrong("continue_final_message and add_generation_prompt are not compatible.",
                 "continue_final_message");
  }
  Conversation conversation((*entry)->traits, request.normalize);
  auto messages = conversation.messages(
      request.messages, request.continue_final_message ? &request.continue_field : nullptr,
      (*entry)->code->source());
  auto tools = messages ? conversation.tools(request.tools) : messages;
  auto documents = tools ? Conversation::documents(request.documents) : tools;
  if (!documents) {
    return std::unexpected(std::move(documents.error()));
  }
  std::vector<jinja::Pair> context;
  context.reserve(4 + special_tokens_.size() + request.special_tokens.size() +
                  request.kwargs.size());
  const auto add = [&context](std::string_view name, jinja::Value value) {
    context.emplace_back(jinja::Value::borrowed(name), std::move(value));
  };
  for (const auto& [name, text] : special_tokens_) {
    add(name, jinja::Value::borrowed(text));
  }
  for (const auto& [name, value] : request.special_tokens) {
    add(name, jinja::from_json(value));
  }
  add("messages", std::move(*messages));
  add("tools", std::move(*tools));
  add("documents", std::move(*documents));
  add("add_generation_prompt", jinja::Value::boolean(request.add_generation_prompt));
  for (const auto& [name, value] : request.kwargs) {
    add(name, jinja::from_json(value));
  }
  std::size_t bytes =
      text_bytes(request.messages) + text_bytes(request.tools) + text_bytes(request.documents);
  for (const auto& [name, value] : request.kwargs) {
    bytes += text_bytes(value);
  }
  auto prompt = (*entry)->code->render(
      jinja::Value::dict(std::move(context)),
      {.now = request.now, .limits = jinja::Limits::for_input(bytes), .stop = request.stop});
  if (prompt && request.continue_final_message) {
    prompt = cut_at_tag(std::move(*prompt), conversation.final_text());
  }
  if (prompt && request.normalize) {
    remove_nul(*prompt);
  }
  return prompt;
}

ContentFormat ChatTemplate::content_format() const {
  const auto found = std::ranges::find(entries_, "default", &Entry::name);
  return found == entries_.end() ? ContentFormat::Text : found->traits.content;
}

std::string_view ChatTemplate::source(std::string_view name) const {
  const auto found = std::ranges::find(entries_, name, &Entry::name);
  return found == entries_.end() ? std::string_view() : std::string_view(found->code->source());
}

bool ends_inside_thinking(std::string_view prompt) {
  return jinja::text::strip(prompt, jinja::text::Side::Right).ends_with("<think>");
}

}  // namespace fairlead::chat
