#pragma once

#include <cstddef>
#include <memory>

#include "base/intrusive_list.hpp"
#include "net/event.hpp"
#include "net/task.hpp"

namespace fairlead::net {

/// Owner of tasks that nobody awaits. Destroying the group, or `cancel`, destroys every unfinished
/// task at once; neither may happen on the stack of one of them. An exception that leaves a task is
/// logged and ends that task only. Keep it as the last member, so that what the tasks use outlives
/// them.
class TaskGroup {
 public:
  TaskGroup();
  TaskGroup(const TaskGroup&) = delete;
  TaskGroup& operator=(const TaskGroup&) = delete;
  ~TaskGroup();

  /// Starts the task now, on this stack, until it first suspends.
  void spawn(Task<> task);
  /// Destroys every unfinished task.
  void cancel();
  /// Unfinished tasks.
  std::size_t size() const { return size_; }
  /// Awaits that no task is left.
  Task<> wait_idle();

 private:
  struct Root;
  Task<> run(Task<> task, Root* root);
  void finished(Root& root);

  std::unique_ptr<IntrusiveList<Root, Root>> roots_;
  std::size_t size_ = 0;
  Event idle_;
};

}  // namespace fairlead::net
