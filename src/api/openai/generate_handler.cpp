#include "api/openai/generate_handler.hpp"

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "api/error_response.hpp"
#include "api/openai/encoder.hpp"
#include "api/openai/unary_encoder.hpp"
#include "base/log.hpp"
#include "serving/generation.hpp"

namespace fairlead::api::openai {
namespace {

AnswerInfo answer_info(const Prepared& prepared, const serving::GenerationSpec& spec,
                       observe::Endpoint endpoint) {
  AnswerInfo info;
  info.endpoint = endpoint;
  info.id = endpoint == observe::Endpoint::ChatCompletions ? "chatcmpl-" : "cmpl-";
  info.id += prepared.request_id.empty() ? spec.request_id : prepared.request_id;
  info.model = spec.model->name;
  info.created = std::chrono::duration_cast<std::chrono::seconds>(
                     std::chrono::system_clock::now().time_since_epoch())
                     .count();
  info.choices = static_cast<std::uint32_t>(spec.prompts.size()) * spec.n;
  info.include_usage = prepared.include_usage;
  info.continuous_usage = prepared.continuous_usage;
  info.details = prepared.details;
  if (prepared.annotate_request_id) {
    info.annotated_request_id = spec.request_id;
  }
  return info;
}

}  // namespace

GenerateHandler::GenerateHandler(serving::Service& service, const ApiOptions& options,
                                 std::uint64_t seed)
    : service_(service), options_(options), preparation_(service, options), ids_(seed) {}

int GenerateHandler::refuse(net::http::Exchange& exchange, observe::Endpoint endpoint,
                            const Prepared& prepared, double started, const Error& error) {
  const std::string_view model =
      prepared.model.empty() ? observe::Registry::kUnknownModel : std::string_view(prepared.model);
  observe::RequestScope scope(
      service_.metrics(model), endpoint,
      prepared.stream ? observe::RequestType::Stream : observe::RequestType::Unary, started);
  scope.finish(&error, service_.seconds());
  respond_error(exchange, error, options_);
  return error_status(error, options_);
}

net::Task<int> GenerateHandler::serve(net::http::Exchange& exchange, observe::Endpoint endpoint) {
  const double started = service_.seconds();
  Prepared prepared;
  net::http::Request& request = exchange.request();
  if (const auto error = refusal(service_, request)) {
    co_return refuse(exchange, endpoint, prepared, started, *error);
  }
  if (preparation_.is_small(request)) {
    prepared = preparation_.at_once(request, endpoint);
  } else {
    observe::PreparingScope preparing(service_.metrics(observe::Registry::kUnknownModel), endpoint,
                                      started);
    Result<Prepared> done = co_await preparation_.on_pool(request, endpoint);
    preparing.done();
    if (!done) {
      co_return refuse(exchange, endpoint, prepared, started, done.error());
    }
    prepared = std::move(*done);
  }
  if (!prepared.spec) {
    co_return refuse(exchange, endpoint, prepared, started, prepared.spec.error());
  }
  serving::GenerationSpec& spec = *prepared.spec;
  spec.request_id = ids_.next(exchange.request().headers);
  observe::RequestScope scope(
      service_.metrics(prepared.model), endpoint,
      prepared.stream ? observe::RequestType::Stream : observe::RequestType::Unary, started);
  std::optional<StreamEncoder> stream;
  std::optional<UnaryEncoder> unary;
  serving::ResponseEncoder* encoder = nullptr;
  if (prepared.stream) {
    encoder = &stream.emplace(exchange, options_, answer_info(prepared, spec, endpoint),
                              service_.options());
  } else {
    encoder = &unary.emplace(exchange, answer_info(prepared, spec, endpoint), service_.options());
  }
  Live live;
  live.exchange = &exchange;
  live.stream = stream ? &*stream : nullptr;
  live_.push_back(live);
  serving::Generation generation(service_, std::move(spec), *encoder, scope);
  const Result<serving::Usage> usage = co_await generation.run();
  scope.finish(usage ? nullptr : &usage.error(), service_.seconds());
  if (usage) {
    stream ? stream->finish(*usage) : unary->finish(*usage);
    co_return 200;
  }
  if (unary && unary->failure() && usage.error().code == ErrorCode::Overloaded &&
      service_.may_warn()) {
    log::warn("request refused: {}", usage.error().message);
  }
  if (exchange.started()) {
    if (stream) {
      stream->fail(usage.error());
    }
    co_return 200;
  }
  respond_error(exchange, usage.error(), options_);
  co_return error_status(usage.error(), options_);
}

void GenerateHandler::fail_all(const Error& error) {
  live_.for_each([&](Live& live) {
    if (live.exchange->finished()) {
      return;
    }
    if (live.stream && live.exchange->started()) {
      live.stream->fail(error);
    } else {
      respond_error(*live.exchange, error, options_);
    }
  });
}

}  // namespace fairlead::api::openai
