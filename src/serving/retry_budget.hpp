#pragma once

#include <algorithm>

#include "net/reactor.hpp"

namespace fairlead::serving {

/// How many attempts may be repeated: so many per second, and a share of all requests on top. When
/// a whole fleet fails, repeating everything would multiply the load just then. Belongs to one
/// reactor.
class RetryBudget {
 public:
  static constexpr double kPerSecond = 10;    ///< Retries that are always allowed.
  static constexpr double kPerRequest = 0.2;  ///< What each request adds.
  static constexpr double kMost = 100;        ///< The most that is saved up.

  /// A request begins.
  void earn() { saved_ = std::min(kMost, saved_ + kPerRequest); }
  /// Takes one retry; false when there is none left.
  bool spend(net::TimePoint now) {
    const double seconds = std::chrono::duration<double>(now - last_).count();
    last_ = now;
    saved_ = std::min(kMost, saved_ + std::clamp(seconds, 0.0, 1.0) * kPerSecond);
    if (saved_ < 1) {
      return false;
    }
    saved_ -= 1;
    return true;
  }

 private:
  double saved_ = kPerSecond;
  net::TimePoint last_;
};

}  // namespace fairlead::serving
