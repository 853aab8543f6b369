#pragma once

#include <span>
#include <string_view>

#include "cli/option_spec.hpp"

namespace fairlead::cli {

/// Options of `serve` and of `config check`.
std::span<const OptionSpec> serve_table();

/// Heading of the options that only kv mode reads.
inline constexpr std::string_view kKvRouting = "Routing by KV cache";

/// The part of `serve_table` about how workers are chosen.
std::span<const OptionSpec> router_rows();

/// Options of `demo`.
std::span<const OptionSpec> demo_table();

/// Options of `mock-engine`.
std::span<const OptionSpec> mock_engine_table();

/// Options of `probe`.
std::span<const OptionSpec> probe_table();

/// Options of `tokenize`.
std::span<const OptionSpec> tokenize_table();

/// Options of `render`.
std::span<const OptionSpec> render_table();

/// `DYN_` switches of other frontends that this program does not act on, with what to do instead.
/// Setting one is a warning at start.
struct UnsupportedVariable {
  std::string_view name;    ///< The variable.
  std::string_view reason;  ///< Why it has no effect here.
};

/// All of them.
std::span<const UnsupportedVariable> unsupported_variables();

/// Those about how workers are chosen.
std::span<const UnsupportedVariable> unsupported_router_variables();

}  // namespace fairlead::cli
