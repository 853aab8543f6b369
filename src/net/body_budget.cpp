#include "net/body_budget.hpp"

namespace fairlead::net::http {

bool BodyBudget::take(std::size_t bytes) {
  std::size_t used = used_.load(std::memory_order_relaxed);
  do {
    if (bytes > limit_ || used > limit_ - bytes) {
      return false;
    }
  } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  return true;
}

bool BodyBudget::has_room(std::size_t bytes) const {
  return bytes <= limit_ && used() <= limit_ - bytes;
}

bool BodyShare::change(std::size_t wanted) {
  if (wanted < taken_) {
    budget_->give(taken_ - wanted);
  } else if (!budget_->take(wanted - taken_)) {
    return false;
  }
  taken_ = wanted;
  return true;
}

}  // namespace fairlead::net::http
