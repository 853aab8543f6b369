#include "api/openai/prepare.hpp"

#include <fmt/format.h>

#include <utility>

#include "chat/chat_template.hpp"

namespace fairlead::api::openai {
namespace {

using Prompts = std::vector<std::vector<engine::TokenId>>;

Result<const ServedModel*> choose_model(const serving::ServedModels* models,
                                        const std::string& name) {
  if (!models || models->empty()) {
    return fail(ErrorCode::ModelNotReady, "No engine is being served yet, please retry");
  }
  const ServedModel* served = name.empty() ? models->sole() : models->find(name);
  if (!served && name.empty()) {
    return fail(ErrorCode::ModelNotFound,
                "`model` must be given: there is more than one model to choose from", "model");
  }
  if (!served) {
    return fail(
        ErrorCode::ModelNotFound,
        fmt::format("The model `{}` does not exist.", std::string_view(name).substr(0, 512)),
        "model");
  }
  return served;
}

Result<> check_ready(const ServedModel& served) {
  if (!served.model->ready()) {
    return fail(
        ErrorCode::ModelNotReady,
        fmt::format("The model `{}` has no worker right now, please retry", served.model->name));
  }
  if (!served.assets) {
    return fail(ErrorCode::ModelNotReady,
                fmt::format("The files of the model `{}` are not loaded yet, please retry",
                            served.model->name));
  }
  return {};
}

/// Refuses a prompt that certainly exceeds the context, before the work of tokenizing it.
Result<> check_length(const ServedModel& served, const RequestBody& body, std::string_view text) {
  const std::uint32_t context = context_length(served);
  // Short texts need no closer look: a token stands for a byte at least.
  if (context == 0 || body.truncate_prompt_tokens || text.size() < context) {
    return {};
  }
  const std::size_t tokens = served.assets->tokenizer->min_tokens(text);
  if (tokens >= context) {
    return std::unexpected(context_exceeded(body, context, tokens, true));
  }
  return {};
}

Result<> encode(const serving::ModelContext& assets, std::string_view text, bool add_special,
                std::string_view field, Prompts& prompts, const std::stop_token& stop) {
  Result<> encoded = assets.tokenizer->encode(text, add_special, prompts.emplace_back(), stop);
  if (!encoded) {
    encoded.error().param = field;
  }
  return encoded;
}

Result<Prompts> chat_prompt(const ServedModel& served, RequestBody& body,
                            const std::stop_token& stop) {
  const Result<std::string> text = render_chat(served, body, stop);
  if (!text) {
    return std::unexpected(text.error());
  }
  if (Result<> checked = check_length(served, body, *text); !checked) {
    return std::unexpected(std::move(checked.error()));
  }
  Prompts prompts;
  if (Result<> encoded = encode(*served.assets, *text, body.add_special_tokens.value_or(false),
                                "messages", prompts, stop);
      !encoded) {
    return std::unexpected(encoded.error());
  }
  return prompts;
}

Result<Prompts> completion_prompts(const ServedModel& served, RequestBody& body,
                                   const std::stop_token& stop) {
  for (const Prompt& prompt : body.prompts) {
    const auto* text = std::get_if<std::string>(&prompt);
    if (Result<> checked = text ? check_length(served, body, *text) : Result<>(); !checked) {
      return std::unexpected(std::move(checked.error()));
    }
  }
  Prompts prompts;
  prompts.reserve(body.prompts.size());
  for (Prompt& prompt : body.prompts) {
    if (auto* ids = std::get_if<std::vector<engine::TokenId>>(&prompt)) {
      prompts.push_back(std::move(*ids));
      continue;
    }
    if (Result<> encoded = encode(*served.assets, std::get<std::string>(prompt),
                                  body.add_special_tokens.value_or(true), "prompt", prompts, stop);
        !encoded) {
      return std::unexpected(encoded.error());
    }
  }
  return prompts;
}

/// What the answer of a chat begins with when it is to repeat the last message.
std::string echoed_message(const RequestBody& body) {
  const json::Value& last = body.messages.as_array()->back();
  const json::Value* role = last.find("role");
  const std::string* name = role ? role->as_string() : nullptr;
  const json::Value* content = last.find("content");
  if (!name || *name != "assistant" || !content) {
    return {};
  }
  if (const std::string* text = content->as_string()) {
    return *text;
  }
  std::string out;
  if (const json::Array* parts = content->as_array()) {
    for (const json::Value& part : *parts) {
      const json::Value* text = part.find("text");
      if (text && text->as_string()) {
        out += (out.empty() ? "" : "\n") + *text->as_string();
      }
    }
  }
  return out;
}

Result<serving::GenerationSpec> make_spec(const PrepareInput& input, RequestBody& body,
                                          Prepared& out, const std::stop_token& stop) {
  const Result<const ServedModel*> served = find_served(input.models.get(), body.model, out.model);
  if (!served) {
    return std::unexpected(served.error());
  }
  const bool chat = body.endpoint == observe::Endpoint::ChatCompletions;
  const std::string echo = chat && body.echo ? echoed_message(body) : std::string();
  Result<Prompts> prompts =
      chat ? chat_prompt(**served, body, stop) : completion_prompts(**served, body, stop);
  if (!prompts) {
    return std::unexpected(std::move(prompts.error()));
  }
  Result<serving::GenerationSpec> spec = resolve(body, **served, std::move(*prompts));
  if (spec) {
    out.details = resolve_details(body, (*served)->assets->defaults, echo, *spec);
  }
  return spec;
}

}  // namespace

Result<const ServedModel*> find_served(const serving::ServedModels* models, const std::string& name,
                                       std::string& found) {
  const Result<const ServedModel*> served = choose_model(models, name);
  if (!served) {
    return served;
  }
  found = (*served)->model->name;
  if (Result<> ready = check_ready(**served); !ready) {
    return std::unexpected(std::move(ready.error()));
  }
  return served;
}

Result<std::string> render_chat(const ServedModel& served, RequestBody& body,
                                const std::stop_token& stop) {
  const serving::ModelContext& assets = *served.assets;
  if (!assets.chat_template) {
    return fail(ErrorCode::InvalidRequest,
                "The model has no chat template; use a completions request instead", "messages");
  }
  chat::RenderRequest request;
  request.messages = std::move(body.messages);
  request.tools = std::move(body.tools);
  request.documents = std::move(body.documents);
  request.kwargs = std::move(body.template_kwargs);
  request.add_generation_prompt = body.add_generation_prompt;
  request.continue_final_message = body.continue_final_message;
  request.stop = stop;
  Result<std::string> text = assets.chat_template->render(request);
  if (!text && text.error().param.empty()) {
    text.error().param = "messages";
  }
  return text;
}

Prepared prepare(const PrepareInput& input, const std::string& text, JsonReader& reader,
                 const std::stop_token& stop) {
  Prepared out;
  Result<RequestBody> body = parse_request(input.endpoint, reader, text, input.options);
  if (!body) {
    out.spec = std::unexpected(std::move(body.error()));
    return out;
  }
  if (stop.stop_requested()) {
    out.spec = fail(ErrorCode::ClientGone, "nobody waits for the answer any more");
    return out;
  }
  if (Result<> applied = apply_headers(input.routing_headers, input.options, *body); !applied) {
    out.spec = std::unexpected(std::move(applied.error()));
    return out;
  }
  out.stream = body->stream;
  out.include_usage = body->include_usage;
  out.continuous_usage = body->continuous_usage;
  out.annotate_request_id = body->annotate_request_id;
  out.request_id = std::move(body->request_id);
  out.spec = make_spec(input, *body, out, stop);
  return out;
}

}  // namespace fairlead::api::openai
