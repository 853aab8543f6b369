#pragma once

#include <cstddef>

namespace fairlead {

/// A node that can be in at most one list of its tag; it leaves the list when it is destroyed.
template <class Tag = void>
class ListNode {
 public:
  ListNode() = default;
  ListNode(const ListNode&) = delete;
  ListNode& operator=(const ListNode&) = delete;
  ~ListNode() { unlink(); }

  /// True while in a list.
  bool linked() const { return next_ != nullptr; }

  /// Leaves its list, if any. O(1).
  void unlink() {
    if (next_) {
      prev_->next_ = next_;
      next_->prev_ = prev_;
      next_ = prev_ = nullptr;
    }
  }

 private:
  template <class T, class U>
  friend class IntrusiveList;

  ListNode* prev_ = nullptr;
  ListNode* next_ = nullptr;
};

/// A list of objects that derive from ListNode<Tag>; owns nothing and allocates nothing.
template <class T, class Tag = void>
class IntrusiveList {
 public:
  IntrusiveList() { root_.prev_ = root_.next_ = &root_; }
  IntrusiveList(const IntrusiveList&) = delete;
  IntrusiveList& operator=(const IntrusiveList&) = delete;
  ~IntrusiveList() {
    while (!empty()) {
      pop_front();
    }
    root_.prev_ = root_.next_ = nullptr;
  }

  /// True when no object is in the list.
  bool empty() const { return root_.next_ == &root_; }

  /// Appends an object that is in no list of this tag.
  void push_back(T& object) {
    ListNode<Tag>& node = object;
    node.prev_ = root_.prev_;
    node.next_ = &root_;
    root_.prev_->next_ = &node;
    root_.prev_ = &node;
  }

  /// The first object; the list must not be empty.
  T& front() { return static_cast<T&>(*root_.next_); }

  /// Removes and returns the first object; the list must not be empty.
  T& pop_front() {
    T& object = front();
    static_cast<ListNode<Tag>&>(object).unlink();
    return object;
  }

  /// Moves everything from `other` to the end of this list. O(1).
  void splice(IntrusiveList& other) {
    if (other.empty()) {
      return;
    }
    ListNode<Tag>* first = other.root_.next_;
    ListNode<Tag>* last = other.root_.prev_;
    other.root_.prev_ = other.root_.next_ = &other.root_;
    first->prev_ = root_.prev_;
    root_.prev_->next_ = first;
    last->next_ = &root_;
    root_.prev_ = last;
  }

  /// Calls `visit` with each object; the visited one may leave the list.
  template <class F>
  void for_each(F&& visit) {
    for (ListNode<Tag>* node = root_.next_; node != &root_;) {
      ListNode<Tag>* next = node->next_;
      visit(static_cast<T&>(*node));
      node = next;
    }
  }

 private:
  ListNode<Tag> root_;
};

}  // namespace fairlead
