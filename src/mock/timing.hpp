#pragma once

#include <chrono>
#include <cstdint>

namespace fairlead::mock {

/// Simulated time: nanoseconds since any fixed start.
using Nanos = std::chrono::nanoseconds;

/// How long a step of the simulated engine takes: the polynomials that Dynamo's mocker uses by
/// default, fitted to a real engine.
class TimingModel {
 public:
  /// Times are divided by `speedup`, those of decoding by `decode_speedup` as well; a factor of 0
  /// means no delay.
  TimingModel(double speedup, double decode_speedup)
      : prefill_factor_(inverse(speedup)),
        decode_factor_(inverse(speedup) * inverse(decode_speedup)) {}

  /// Time to compute `tokens` prompt tokens that were not cached, in all sequences of the step.
  Nanos prefill(std::uint64_t tokens) const {
    if (tokens == 0) {
      return Nanos(0);
    }
    const auto t = static_cast<double>(tokens);
    return milliseconds((4.209989e-7 * t * t + 1.518344e-2 * t + 16.50142) * prefill_factor_);
  }

  /// Time of one decode step while `active` of `total` token places of the KV cache are in use.
  Nanos decode(std::uint64_t active, std::uint64_t total) const {
    const double u = total == 0 ? 1.0 : static_cast<double>(active) / static_cast<double>(total);
    const double ms = -25.74 * u * u + 54.01 * u + 5.74;
    return milliseconds((ms < 1.0 ? 1.0 : ms) * decode_factor_);
  }

  /// True when no step takes time.
  bool instant() const { return prefill_factor_ == 0 && decode_factor_ == 0; }

 private:
  static double inverse(double factor) { return factor <= 0 ? 0 : 1.0 / factor; }
  static Nanos milliseconds(double ms) { return Nanos(static_cast<std::int64_t>(ms * 1e6)); }

  double prefill_factor_;
  double decode_factor_;
};

}  // namespace fairlead::mock
