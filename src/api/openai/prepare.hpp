#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "api/json_reader.hpp"
#include "api/openai/request.hpp"
#include "api/openai/token_details.hpp"
#include "api/options.hpp"
#include "base/error.hpp"
#include "net/http.hpp"
#include "observe/metrics.hpp"
#include "serving/generation.hpp"
#include "serving/served_models.hpp"

namespace fairlead::api::openai {

using serving::ServedModel;

/// Everything `prepare` reads besides the body; holds no reference to a reactor's state, so that
/// the work can be done on another thread.
struct PrepareInput {
  observe::Endpoint endpoint = observe::Endpoint::ChatCompletions;  ///< Which API.
  ApiOptions options;                                               ///< Copied.
  net::http::HeaderList routing_headers;  ///< Those that pin a worker or name a tenant.
  std::shared_ptr<const serving::ServedModels> models;  ///< All of the fleet's; null: none.
};

/// What became of a request's body.
struct Prepared {
  std::string model;                 ///< Public name of the model; empty when none was found.
  bool stream = false;               ///< Known once the body was parsed.
  bool include_usage = false;        ///< As asked.
  bool continuous_usage = false;     ///< As asked.
  bool annotate_request_id = false;  ///< As asked.
  std::string request_id;            ///< The client's name for the answer; empty = none.
  std::shared_ptr<const TokenDetails> details = {};  ///< Null: text only.
  Result<serving::GenerationSpec> spec = {};  ///< All but `request_id`; or the client's mistake.
};

/// Parses, renders, tokenizes and checks: from the bytes of a body to a generation. Pure. Soon
/// after `stop` is requested it ends with some error.
Prepared prepare(const PrepareInput& input, const std::string& body, JsonReader& reader,
                 const std::stop_token& stop = {});

/// The model that a request names, which can be served now; without a name the only one there is.
/// `found` gets its public name, also when it cannot be served.
Result<const ServedModel*> find_served(const serving::ServedModels* models, const std::string& name,
                                       std::string& found);

/// The text that the model's template makes of a chat, whose documents it takes. The error names
/// the field.
Result<std::string> render_chat(const ServedModel& served, RequestBody& body,
                                const std::stop_token& stop);

/// How many tokens the model takes, input and output together; 0 when that is not known.
std::uint32_t context_length(const ServedModel& served);

/// The refusal of a prompt of `tokens` (or more, when they are `at_least` so many) tokens that
/// leaves no room for output.
Error context_exceeded(const RequestBody& body, std::uint32_t context, std::size_t tokens,
                       bool at_least);

/// Turns checked values into a generation: sampling over the model's defaults, stops, limits.
/// `prompts` are the tokenized ones. Errors are the client's.
Result<serving::GenerationSpec> resolve(const RequestBody& body, const ServedModel& served,
                                        std::vector<std::vector<engine::TokenId>> prompts);

}  // namespace fairlead::api::openai
