#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mock/generate_spec.hpp"
#include "mock/options.hpp"

namespace fairlead::mock {

/// Why a request is refused, in no interface's terms.
struct Refusal {
  /// What is wrong.
  enum class Kind : std::uint8_t {
    Malformed,      ///< Not the form that the interface defines: syntax, types, missing fields.
    Invalid,        ///< A value that cannot be.
    NotFound,       ///< A model or adapter that is not served.
    Precondition,   ///< Not with how this engine was started.
    Unimplemented,  ///< The simulation cannot do it.
    Exhausted,      ///< Too much at a time.
    Unavailable,    ///< Not now.
  };
  Kind kind = Kind::Invalid;  ///< What is wrong.
  std::string message;        ///< The engine's words.
  std::string param;          ///< The field at fault; empty = none is named.
};

/// The outcome of a check: nothing when it passed.
using Check = std::optional<Refusal>;

/// The values of a request that have a range, absent ones not set.
struct SamplingValues {
  std::optional<float> temperature;         ///< 0 to 2.
  std::optional<float> top_p;               ///< Above 0, to 1.
  std::optional<float> min_p;               ///< 0 to 1.
  std::optional<float> presence_penalty;    ///< -2 to 2.
  std::optional<float> frequency_penalty;   ///< -2 to 2.
  std::optional<float> repetition_penalty;  ///< Above 0.
};

/// What an engine says that takes no temperature.
inline constexpr std::string_view kNoTemperature =
    "temperature is not supported by this model; leave it out.";

/// Ids of a vocabulary as the candidate formula counts them.
std::uint64_t vocabulary_of(const MockOptions& options);

/// A new random request id in the form of a UUID.
std::string make_uuid();

/// Checks every value's range.
Check check_ranges(const SamplingValues& values);
/// Refuses ids outside the vocabulary, all named; `name` is the field.
Check check_vocabulary(std::string_view name, std::vector<TokenId> ids, const MockOptions& options);
/// Checks sequences that must not be generated. They change nothing in a simulated answer.
Check check_bad_words(const std::vector<std::vector<TokenId>>& sequences,
                      const MockOptions& options);
/// Checks a number of candidates (-1: the whole vocabulary) and puts it into `choice`.
Check check_top_n(std::int64_t top_n, const MockOptions& options, CandidateChoice& choice);
/// Checks a list of candidates that was put into `choice`.
Check check_candidate_ids(const MockOptions& options, const CandidateChoice& choice);
/// Checks that the prompt leaves room for an answer.
Check check_length(const MockOptions& options, std::size_t prompt);
/// Resolves the limits of an answer to a checked prompt; `max_tokens` 0 means what fits.
Check set_limits(std::uint32_t max_tokens, std::uint32_t min_tokens, const MockOptions& options,
                 GenerateSpec& spec);
/// Sets what ends an answer: the request's ids and the model's EOS.
Check set_stop_ids(std::vector<TokenId> ids, bool ignore_eos, const MockOptions& options,
                   GenerateSpec& spec);
/// Checks that the wanted rank exists.
Check check_rank_exists(const MockOptions& options, const GenerateSpec& spec);

}  // namespace fairlead::mock
