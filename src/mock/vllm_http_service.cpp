#include "mock/vllm_http_service.hpp"

#include <algorithm>
#include <utility>

#include "base/json.hpp"
#include "mock/generation.hpp"
#include "mock/vllm_http_answer.hpp"
#include "mock/vllm_http_error.hpp"
#include "mock/vllm_http_fields.hpp"
#include "mock/vllm_http_request.hpp"
#include "net/event.hpp"

namespace fairlead::mock {
namespace {

constexpr std::string_view kGenerate = "/inference/v1/generate";
constexpr std::string_view kAbort = "/inference/v1/abort_requests";
constexpr std::string_view kIdPrefix = "generate-tokens-";
constexpr std::string_view kScaleOutOff =
    "Scale-out endpoints are disabled. Start the server with --enable-scale-out to enable them.";

// The body itself; what is no object cannot be shown beside the headers.
std::string render_body(const ReceivedRequest& received) {
  const auto body = json::parse(received.message);
  return body && body->as_object() ? json::dump(*body) : "null";
}

bool is_logprobs_field(std::string_view name) {
  return name == "logprobs" || name == "logprob_token_ids" || name == "prompt_logprobs";
}

// The record holds `sampling_params` as sent, apart from the extra arguments.
RenderedRecord render_http_record(const RequestRecord& record) {
  RenderedRecord rendered;
  const auto fields = json::parse(record.sampling);
  if (!fields || !fields->as_object()) {
    return rendered;
  }
  json::Object sampling;
  json::Object logprobs;
  for (const json::Member& member : *fields->as_object()) {
    (is_logprobs_field(member.key) ? logprobs : sampling).set(member.key, member.value);
  }
  rendered.sampling = json::dump(sampling);
  rendered.logprobs = json::dump(logprobs);
  return rendered;
}

RequestRecord record_of(const HttpOutcome& outcome, const MockOptions& options) {
  RequestRecord record;
  record.request_id = outcome.request_id;
  record.model = outcome.model;
  if (outcome.refusal) {
    record.refusal = outcome.refusal->message;
  }
  if (outcome.request) {
    record.lora = outcome.request->spec.cache_key.lora;
    record.stream = outcome.request->stream;
    const json::Object* extra = outcome.request->extra_args.as_object();
    if (extra && !extra->empty()) {
      record.extra_args = json::dump(*extra);
    }
  }
  if (const json::Object* given = outcome.sampling.as_object()) {
    json::Object sampling = *given;
    for (const std::string_view key : extra_args_keys(options)) {
      sampling.erase(key);
    }
    record.sampling = json::dump(sampling);
  }
  return record;
}

// Whether a fault wants to answer before there is a token.
bool fails_unanswered(const EngineState& state) {
  return std::ranges::any_of(state.options.faults, [](const Fault& fault) {
    return fault.kind == FaultKind::ErrorAfter && fault.tokens == 0;
  });
}

}  // namespace

VllmHttpService::VllmHttpService(EngineState& state) : state_(state) {
  state_.render_message = render_body;
  state_.render_record = render_http_record;
}

net::http::Handler VllmHttpService::handler() {
  return [this](net::http::Exchange& exchange) { return serve(exchange); };
}

std::string VllmHttpService::error_body(int status, std::string_view message) const {
  return http_error_body(state_.options.flavor, status, message);
}

void VllmHttpService::respond(net::http::Exchange& exchange, int status,
                              std::string_view body) const {
  net::http::HeaderList headers{{"content-type", "application/json"}};
  if (is_python(state_.options.flavor)) {
    headers.add("server", "uvicorn");
  }
  exchange.respond(status, headers, body);
}

net::Task<> VllmHttpService::serve(net::http::Exchange& exchange) {
  if (const Fault* stall = state_.fault(FaultKind::StallOpen); stall && stall->all) {
    net::Event never;
    co_await never.wait();
  }
  const net::http::Request& request = exchange.request();
  const bool python = is_python(state_.options.flavor);
  const bool scale_out = request.path == kGenerate || (python && request.path == kAbort);
  if (scale_out && !state_.options.has(Capability::TokenRoute)) {
    respond(exchange, 403, error_body(403, kScaleOutOff));
  } else if (scale_out && request.method != "POST") {
    respond(exchange, 405, error_body(405, "Method Not Allowed"));
  } else if (request.path == kGenerate) {
    co_await generate(exchange);
  } else if (scale_out) {
    abort_requests(exchange);
  } else {
    HttpPage page = http_page(state_, request.path);
    if (page.status != 404 && request.method != "GET" && request.method != "HEAD") {
      page = {405, "application/json", error_body(405, "Method Not Allowed")};
    }
    net::http::HeaderList headers;
    if (!page.content_type.empty()) {
      headers.add("content-type", std::string(page.content_type));
    }
    if (python) {
      headers.add("server", "uvicorn");
    }
    exchange.respond(page.status, headers, page.body);
  }
}

net::Task<> VllmHttpService::generate(net::http::Exchange& exchange) {
  const net::http::Request& http = exchange.request();
  const MockOptions& options = state_.options;
  ++state_.requests_total;
  state_.record(http.path, http.headers, http.body);
  if (state_.fault(FaultKind::StallOpen)) {
    const HeldRequest held(state_);
    net::Event never;
    co_await never.wait();
  }
  HttpOutcome outcome =
      check_http_request(http.body, http.headers.find("x-data-parallel-rank"), options);
  if (outcome.request) {
    outcome.refusal = check_admission(state_);
  }
  state_.add_record(record_of(outcome, options));
  if (outcome.refusal) {
    ++state_.rejected_total;
    const HttpError error = http_error(options.flavor, *outcome.refusal);
    if (!outcome.as_event) {
      respond(exchange, error.status, error.body);
      co_return;
    }
    exchange.start(200,
                   {{"content-type", "text/event-stream; charset=utf-8"}, {"server", "uvicorn"}});
    exchange.out() += "data: " + error.body + "\n\ndata: [DONE]\n\n";
    exchange.commit();
    exchange.finish();
    co_return;
  }
  const HttpRequest& request = *outcome.request;
  EngineCore& core =
      request.spec.any_rank ? state_.least_loaded() : *state_.cores[request.spec.rank];
  HttpAnswer answer(request, options, exchange);
  if (!fails_unanswered(state_)) {
    answer.open();
  }
  Generation generation(state_, core, request.spec, answer, exchange);
  co_await generation.run();
  if (!generation.was_reset()) {
    co_return;
  }
  // A handler that returns in the middle of an answer has its connection cut.
  if (!exchange.started()) {
    exchange.start(200, {{"content-type", "application/json"}});
  }
  co_await drain_before_reset(exchange);
}

// Only ids as answers carry them are known; others are passed over, as by the real one.
void VllmHttpService::abort_requests(net::http::Exchange& exchange) {
  ++state_.abort_calls_total;
  const auto body = json::parse(exchange.request().body);
  const json::Value* list = body ? body->find("request_ids") : nullptr;
  const json::Array* ids = list ? list->as_array() : nullptr;
  if (!ids) {
    respond(exchange, 400, error_body(400, "request_ids must be a list of request ids"));
    return;
  }
  for (const json::Value& item : *ids) {
    const std::string* id = item.as_string();
    if (id && id->starts_with(kIdPrefix)) {
      state_.abort(std::string_view(*id).substr(kIdPrefix.size()));
    }
  }
  exchange.respond(200, {{"server", "uvicorn"}}, {});
}

}  // namespace fairlead::mock
