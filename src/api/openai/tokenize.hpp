#pragma once

#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "api/json_reader.hpp"
#include "api/openai/prepare.hpp"
#include "api/options.hpp"
#include "base/error.hpp"
#include "engine/request.hpp"
#include "net/body_budget.hpp"
#include "serving/service.hpp"

namespace fairlead::api::openai {

/// An answer about tokens, for which no engine is asked.
struct TokenAnswer {
  std::string model;         ///< Public name of the model; empty when none was found.
  Result<std::string> body;  ///< The JSON document; or the client's mistake.
  /// Counts the body among all answers until its client has taken it; may be null.
  std::shared_ptr<net::http::BodyShare> share = {};
};

/// The answer to a body of `/tokenize`: the ids of a text, or of what the model's template makes of
/// a chat, by the same way as those of a generation. `bounds` limits the answer. Any thread. Soon
/// after `stop` is requested it ends with some error.
TokenAnswer tokenize(const PrepareInput& input, const serving::ServiceOptions& bounds,
                     const std::string& body, JsonReader& reader, const std::stop_token& stop = {});

/// Likewise to a body of `/detokenize`: the text of ids, special tokens included.
TokenAnswer detokenize(const PrepareInput& input, const serving::ServiceOptions& bounds,
                       const std::string& body, JsonReader& reader,
                       const std::stop_token& stop = {});

/// A body of `/detokenize`.
struct DetokenizeBody {
  std::string model;                    ///< Empty: none was named.
  std::vector<engine::TokenId> tokens;  ///< Any ids; may be empty.
};

/// Parses and checks it. Every error is the client's and names the place.
Result<DetokenizeBody> parse_detokenize(JsonReader& reader, const std::string& body,
                                        const ApiOptions& options);

}  // namespace fairlead::api::openai
