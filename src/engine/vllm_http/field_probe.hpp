#pragma once

#include <span>
#include <string>
#include <string_view>

#include "engine/vllm_http/dialect.hpp"

namespace fairlead::engine::vllm_http {

/// A field of `sampling_params` whose presence cannot be told from a version, and values of the
/// wrong and of the right type.
struct ProbedField {
  std::string_view name;   ///< Key in `sampling_params`.
  std::string_view wrong;  ///< JSON that it never takes.
  std::string_view right;  ///< JSON that it takes.
};

/// All of them.
std::span<const ProbedField> probed_fields();

/// The body of a request without prompt, which every server refuses before it does anything, with
/// one field (`name` and its JSON) or none in `sampling_params`.
std::string empty_request(std::string_view name = {}, std::string_view value = {});

/// A server's refusal as far as refusals are compared.
struct Refusal {
  int status = 0;       ///< HTTP status.
  std::string message;  ///< What it says.

  bool operator==(const Refusal&) const = default;
};

/// Whether a field is known and can be used. An unknown field changes nothing, or changes the
/// answer whatever its value is (servers that forbid unknown fields); a known one is complained
/// about when it has the wrong type, and when it has the right one the prompt alone is.
bool field_is_taken(const Refusal& without, const Refusal& wrong, const Refusal& right);

/// Sets what was found out about a field.
void set_field(Dialect& dialect, std::string_view name);

/// For servers whose refusals cannot be compared: what released servers take.
void assume_fields(Dialect& dialect);

}  // namespace fairlead::engine::vllm_http
