#pragma once

#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "base/error.hpp"
#include "jinja/runtime.hpp"
#include "jinja/value.hpp"

namespace fairlead::jinja {

struct Program;

/// A parsed template of the language that Hugging Face chat templates are written in: Jinja as
/// transformers configures it (immutable sandbox, `trim_blocks`, `lstrip_blocks`, loop controls,
/// `generation` blocks, `tojson` as Python's `json.dumps`). Immutable: any number of threads may
/// render it at once.
class Template {
 public:
  /// What one render may use.
  struct Options {
    std::optional<std::string> now;  ///< ISO local time for `strftime_now`; absent: the clock.
    Limits limits = {};              ///< Bounds.
    std::stop_token stop = {};       ///< Ends the render with an error.
  };

  /// Longest source; real ones have a few dozen kilobytes.
  static constexpr std::size_t kMaxSourceBytes = std::size_t{512} << 10;

  /// Parses `source`. The error is `InvalidRequest` and names the line.
  static Result<std::shared_ptr<const Template>> parse(std::string source);

  /// Renders with the variables of `context`, a dict. Every failure is `InvalidRequest`:
  /// `raise_exception` with its own message, errors of the template, exceeded limits.
  Result<std::string> render(const Value& context, const Options& options) const;

  /// True when it walks the parts of a message's content (`for part in message.content`), the rule
  /// by which vLLM tells templates that want a list of parts from those that want one text.
  bool loops_over_content() const;

  /// The source as given.
  const std::string& source() const { return source_; }

  ~Template();
  Template(const Template&) = delete;
  Template& operator=(const Template&) = delete;

 private:
  Template(std::string source, Program program);

  const std::string source_;
  const std::unique_ptr<const Program> program_;
};

}  // namespace fairlead::jinja
