#pragma once

namespace fairlead::net::testing {

/// A handler that runs `coroutine(subject, state...)`. A coroutine must not have captures, since it
/// outlives its lambda's call; `state` must outlive the handler.
template <class F, class... State>
auto with(F coroutine, State&... state) {
  return [coroutine, &state...](auto& subject) { return coroutine(subject, state...); };
}

}  // namespace fairlead::net::testing
