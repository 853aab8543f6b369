#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fairlead::engine::vllm_http {

/// What a probe found out about a server's token route, as far as requests depend on it.
struct Dialect {
  /// Whose HTTP server it is.
  enum class Frontend : std::uint8_t {
    Unknown,  ///< Not probed.
    Rust,     ///< `vllm-rs`.
    Python,   ///< `vllm serve` by itself.
  };
  /// Which key of `sampling_params` takes extra arguments.
  enum class ArgsKey : std::uint8_t {
    None,       ///< Neither is known.
    ExtraArgs,  ///< `extra_args`: Python, and Rust since 0.33.0.
    VllmXargs,  ///< `vllm_xargs`: Rust.
  };

  Frontend frontend = Frontend::Unknown;  ///< Whose server.
  ArgsKey args_key = ArgsKey::None;       ///< Where extra arguments go.
  bool logprob_token_ids = false;         ///< The field is known.
  bool bad_words_token_ids = false;       ///< The field is known.
  bool logit_bias = false;                ///< The field can be read.

  bool operator==(const Dialect&) const = default;
};

/// The text in EngineInfo::dialect, e.g. `rust/vllm_xargs+logprob_token_ids`; empty for a
/// server that was not probed.
std::string dialect_text(const Dialect& dialect);

/// The dialect of a text. What is not understood counts as not found out.
Dialect dialect_from_text(std::string_view text);

/// Name of the key; empty for None.
std::string_view args_key_name(Dialect::ArgsKey key);

}  // namespace fairlead::engine::vllm_http
