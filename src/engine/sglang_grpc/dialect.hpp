#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fairlead::engine::sglang_grpc {

/// What a probe found out about an SGLang engine, as far as requests and answers depend on it.
struct Dialect {
  /// How messages of a stream relate to each other (`--incremental-streaming-output`).
  enum class Output : std::uint8_t {
    Unknown,      ///< Not probed.
    Cumulative,   ///< Each message repeats everything: the default.
    Incremental,  ///< Each message has what is new.
  };
  /// Which requests run earlier (`--enable-priority-scheduling`).
  enum class Priority : std::uint8_t {
    Ignored,      ///< None.
    HigherFirst,  ///< Higher values: the default of engines that schedule by priority.
    LowerFirst,   ///< Lower values (`--schedule-low-priority-values-first`).
  };

  Output output = Output::Unknown;        ///< Shape of streams.
  Priority priority = Priority::Ignored;  ///< Direction of priorities.
  bool strict_thinking = false;           ///< Takes budgets of thinking tokens.
  bool early = false;  ///< Before 0.5.17: seeds, guided decoding and budgets would be dropped
                       ///< without a word.

  bool operator==(const Dialect&) const = default;
};

/// The text in EngineInfo::dialect, e.g. `sglang-incremental+priority+strict-thinking`; empty for
/// an engine that was not probed.
std::string dialect_text(const Dialect& dialect);

/// The dialect of a text. What is not understood counts as not found out.
Dialect dialect_from_text(std::string_view text);

}  // namespace fairlead::engine::sglang_grpc
