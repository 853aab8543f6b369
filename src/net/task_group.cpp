#include "net/task_group.hpp"

#include "base/log.hpp"

namespace fairlead::net {

struct TaskGroup::Root : ListNode<TaskGroup::Root> {
  Task<> task;
};

TaskGroup::TaskGroup() : roots_(std::make_unique<IntrusiveList<Root, Root>>()) { idle_.set(); }

TaskGroup::~TaskGroup() { cancel(); }

Task<> TaskGroup::run(Task<> task, Root* root) {
  try {
    co_await std::move(task);
  } catch (const std::exception& e) {
    log::error("a task ended with an exception: {}", e.what());
  }
  finished(*root);
}

void TaskGroup::spawn(Task<> task) {
  auto root = std::make_unique<Root>();
  Root* const raw = root.get();
  raw->task = run(std::move(task), raw);
  roots_->push_back(*root.release());
  ++size_;
  idle_.reset();
  raw->task.handle().resume();
}

void TaskGroup::finished(Root& root) {
  // The root's own frame is still running here; it is destroyed when the turn ends.
  root.unlink();
  Reactor::current()->destroy_later(std::unique_ptr<Root>(&root));
  if (--size_ == 0) {
    idle_.set();
  }
}

void TaskGroup::cancel() {
  while (!roots_->empty()) {
    const std::unique_ptr<Root> root(&roots_->pop_front());
    --size_;
  }
  if (!idle_.is_set() && Reactor::current()) {
    idle_.set();
  }
}

Task<> TaskGroup::wait_idle() {
  while (size_ > 0) {
    idle_.reset();
    co_await idle_.wait();
  }
}

}  // namespace fairlead::net
