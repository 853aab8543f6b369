#pragma once

#include <functional>
#include <optional>
#include <span>

#include "fleet/member.hpp"

namespace fairlead::fleet {

/// Who takes over from the incumbents of a group of members.
struct Succession {
  const Member* heir = nullptr;         ///< Takes over now; null: things stay as they are.
  std::optional<net::TimePoint> later;  ///< When the heir may take over that is there already.
  bool extinct = false;                 ///< No incumbent is there any more, and nobody takes over.
};

/// Decides it for these members, in the order in which they became known; `incumbent` says who is
/// one. Incumbents stay for as long as one of them is up. They are gone when none is there any
/// more, or when all have been down for `after` while another member is up: the first of these
/// takes over.
Succession find_successor(std::span<Member* const> members,
                          const std::function<bool(const Member&)>& incumbent, net::TimePoint now,
                          net::Duration after);

}  // namespace fairlead::fleet
