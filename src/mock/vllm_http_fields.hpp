#pragma once

#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "mock/options.hpp"
#include "mock/request_checks.hpp"

namespace fairlead::mock {

/// Checks the body of `POST /inference/v1/generate` against the types of the flavour's schema,
/// before any value is looked at: a missing field, a wrong type, a field given twice. Fields that
/// the schema lacks are passed over. The words are those of serde (the first fault, with the place
/// where the body ends) or of pydantic (all faults).
Check check_types(const MockOptions& options, std::string_view text, const json::Value& body);

/// The keys of `sampling_params` that take extra arguments.
std::vector<std::string_view> extra_args_keys(const MockOptions& options);

/// The refusal of a body that is no JSON.
Refusal not_json(HttpFlavor flavor, std::string_view text, std::string_view why);

}  // namespace fairlead::mock
