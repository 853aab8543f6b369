#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "hub/environment.hpp"
#include "hub/http.hpp"
#include "hub/model_id.hpp"
#include "hub/part_file.hpp"

namespace fairlead::hub {

/// Bounds of what is fetched. Text-side files are at most some tens of megabytes.
inline constexpr std::uint64_t kMaxFileBytes = std::uint64_t{256} << 20;
inline constexpr std::uint64_t kMaxTotalBytes = std::uint64_t{512} << 20;  ///< Of one model.

/// A model at a commit.
struct Listing {
  std::string commit;              ///< Its full hash.
  std::vector<std::string> files;  ///< Names as the hub says them, whatever they are.
};

/// A file that can be fetched.
struct RemoteFile {
  std::string name;                   ///< In the repository.
  std::string etag;                   ///< Its checksum.
  std::optional<std::uint64_t> size;  ///< When the hub says it.
};

/// What a head says about a file; `failure` is for people, without its name.
Try<RemoteFile> read_remote_file(std::string name, const Head& head);

/// Speaks to the hub about one model. Tries again, with pauses, what may go better then.
class Client {
 public:
  /// `tries`: of everything, at least 1.
  Client(Environment environment, ModelId id, int tries, std::stop_token stop);

  /// Refuses an environment with which nothing can be asked.
  Result<> check() const;
  /// The files at the model's revision.
  Result<Listing> list();
  /// Size and checksum of a file, by a HEAD.
  Result<RemoteFile> describe(const std::string& commit, const std::string& name);
  /// Completes `part`, from where it is, and checks it. `on_bytes` is called as it grows.
  Result<> fetch(const std::string& commit, const RemoteFile& file, PartFile& part,
                 const std::function<void()>& on_bytes);

 private:
  Try<Head> exchange(std::string url, const std::vector<std::string>& headers, bool leave,
                     const TakeBody& take);
  Try<Listing> list_once();
  Try<> fetch_once(const std::string& url, const RemoteFile& file, PartFile& part,
                   const std::function<void()>& on_bytes);
  Failure refused(const Head& head, std::string_view what) const;
  std::string file_url(const std::string& commit, const std::string& name) const;
  template <class T>
  Result<T> persist(const std::function<Try<T>()>& once,
                    const std::function<bool()>& progressed = {});

  Environment environment_;
  ModelId id_;
  int tries_;
  std::stop_token stop_;
  HttpClient http_;
};

}  // namespace fairlead::hub
