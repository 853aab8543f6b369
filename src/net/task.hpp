#pragma once

#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

// Coroutines of one reactor. A Task is lazy, move-only and owned: awaiting it runs it, destroying
// it while it is suspended cancels it, which destroys everything it holds, innermost first. Nothing
// has to check for cancellation, and no cancelled work outlives its owner. A task must not be
// destroyed while it runs: owners cancel from event handlers, timers and posts only.

namespace fairlead::net {

template <class T = void>
class Task;

namespace detail {

struct PromiseBase {
  std::coroutine_handle<> continuation;

  struct FinalAwaiter {
    bool await_ready() const noexcept { return false; }
    template <class Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> self) const noexcept {
      const std::coroutine_handle<> next = self.promise().continuation;
      return next ? next : std::noop_coroutine();
    }
    void await_resume() const noexcept {}
  };

  std::suspend_always initial_suspend() const noexcept { return {}; }
  FinalAwaiter final_suspend() const noexcept { return {}; }
};

template <class T>
struct Promise : PromiseBase {
  std::optional<T> value;
  std::exception_ptr exception;

  Task<T> get_return_object();
  template <class U>
  void return_value(U&& result) {
    value.emplace(std::forward<U>(result));
  }
  void unhandled_exception() { exception = std::current_exception(); }
  T take() {
    if (exception) {
      std::rethrow_exception(exception);
    }
    return std::move(*value);
  }
};

template <>
struct Promise<void> : PromiseBase {
  std::exception_ptr exception;

  Task<void> get_return_object();
  void return_void() const noexcept {}
  void unhandled_exception() { exception = std::current_exception(); }
  void take() const {
    if (exception) {
      std::rethrow_exception(exception);
    }
  }
};

}  // namespace detail

/// One coroutine; see the top of this file.
template <class T>
class [[nodiscard]] Task {
 public:
  using promise_type = detail::Promise<T>;
  /// The coroutine itself.
  using Handle = std::coroutine_handle<promise_type>;

  /// An empty task, to be assigned later.
  Task() = default;
  /// Owns a coroutine that is suspended at its start.
  explicit Task(Handle handle) : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      destroy();
      handle_ = std::exchange(other.handle_, {});
    }
    return *this;
  }
  ~Task() { destroy(); }

  /// Awaiting starts the task; the awaiting coroutine goes on when it has returned.
  auto operator co_await() && noexcept {
    struct Awaiter {
      Handle handle;
      bool await_ready() const noexcept { return false; }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiting) const noexcept {
        handle.promise().continuation = awaiting;
        return handle;
      }
      T await_resume() const { return handle.promise().take(); }
    };
    return Awaiter{handle_};
  }

  /// True when there is a coroutine and it has returned.
  bool done() const { return handle_ && handle_.done(); }
  /// True when there is a coroutine.
  explicit operator bool() const { return static_cast<bool>(handle_); }
  /// The coroutine, for owners such as TaskGroup.
  Handle handle() const { return handle_; }

 private:
  void destroy() {
    if (handle_) {
      std::exchange(handle_, {}).destroy();
    }
  }

  Handle handle_;
};

namespace detail {

template <class T>
Task<T> Promise<T>::get_return_object() {
  return Task<T>(std::coroutine_handle<Promise>::from_promise(*this));
}

inline Task<void> Promise<void>::get_return_object() {
  return Task<void>(std::coroutine_handle<Promise>::from_promise(*this));
}

}  // namespace detail

}  // namespace fairlead::net
