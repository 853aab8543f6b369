#pragma once

#include <expected>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.hpp"
#include "mock/generate_spec.hpp"
#include "mock/options.hpp"
#include "mock/request_checks.hpp"

namespace fairlead::mock {

/// A checked request to `POST /inference/v1/generate`.
struct HttpRequest {
  GenerateSpec spec;              ///< What to do.
  std::string public_id;          ///< The request id as answers carry it.
  std::string model;              ///< The served name or adapter as answers carry it.
  bool stream = false;            ///< Events instead of one body.
  bool include_usage = false;     ///< A last event with usage.
  bool continuous_usage = false;  ///< Usage in every event.
  bool output_text = false;       ///< Answers carry text (Python).
  json::Value extra_args;         ///< The extra arguments that were taken; null = none.
};

/// What was made of a body.
struct HttpOutcome {
  std::optional<HttpRequest> request;  ///< Absent when refused.
  std::optional<Refusal> refusal;      ///< Why.
  /// The Python server has begun its event stream before it finds this out: the error is an event.
  bool as_event = false;
  std::string request_id;  ///< As sent, or made; empty when the body could not be read.
  std::string model;       ///< As sent.
  json::Value sampling;    ///< `sampling_params` as sent.
};

/// Checks a body as the flavour does: first its form, then its values. `rank` is the value of
/// `x-data-parallel-rank`, if sent.
HttpOutcome check_http_request(std::string_view text, std::optional<std::string_view> rank,
                               const MockOptions& options);

}  // namespace fairlead::mock
