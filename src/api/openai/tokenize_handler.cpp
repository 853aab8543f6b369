#include "api/openai/tokenize_handler.hpp"

#include <stop_token>
#include <string>
#include <utility>

#include "api/error_response.hpp"
#include "api/openai/tokenize.hpp"

namespace fairlead::api::openai {

int TokenizeHandler::refuse(net::http::Exchange& exchange, observe::Endpoint endpoint,
                            std::string_view model, const Error& error) {
  observe::count_answer(service_.metrics(model.empty() ? observe::Registry::kUnknownModel : model),
                        endpoint, &error);
  respond_error(exchange, error, options_);
  return error_status(error, options_);
}

net::Task<int> TokenizeHandler::serve(net::http::Exchange& exchange, observe::Endpoint endpoint) {
  net::http::Request& request = exchange.request();
  if (const auto error = refusal(service_, request)) {
    co_return refuse(exchange, endpoint, {}, *error);
  }
  const auto work = [endpoint, bounds = service_.options()](
                        const PrepareInput& input, const std::string& body, JsonReader& reader,
                        const std::stop_token& stop) {
    return endpoint == observe::Endpoint::Tokenize ? tokenize(input, bounds, body, reader, stop)
                                                   : detokenize(input, bounds, body, reader, stop);
  };
  TokenAnswer answer;
  if (preparation_.is_small(request)) {
    answer = preparation_.at_once(request, endpoint, work);
  } else {
    observe::AnsweringScope answering(service_.metrics(observe::Registry::kUnknownModel), endpoint);
    Result<TokenAnswer> done = co_await preparation_.on_pool(request, endpoint, work);
    answering.done();
    if (!done) {
      co_return refuse(exchange, endpoint, {}, done.error());
    }
    answer = std::move(*done);
  }
  if (!answer.body) {
    co_return refuse(exchange, endpoint, answer.model, answer.body.error());
  }
  observe::count_answer(service_.metrics(answer.model), endpoint, nullptr);
  respond_json(exchange, 200, std::move(*answer.body), std::move(answer.share));
  co_return 200;
}

}  // namespace fairlead::api::openai
