#pragma once
#include <string>
#include <utility>
#include <vector>

namespace tokenmill::jobs {

/// Everything that decides the results of a job, as names and values: results computed under one identity must not be
/// mixed with those of another. In the journal it is a text file, one "name: value" a line, with a checksum.
class Identity {
 public:
  using Facts = std::vector<std::pair<std::string, std::string>>;
  Identity() = default;
  explicit Identity(Facts facts) : facts_(std::move(facts)) {}

  const Facts& facts() const { return facts_; }
  /// The value of a name; nullptr: there is none.
  const std::string* find(const std::string& name) const;

  std::string text() const;
  /// Throws Error(kIo) naming the file when the text is not what text() writes.
  static Identity parse(const std::string& text, const std::string& path);
  static Identity read(const std::string& path);

  /// "seed was 0 and is 7; ...": what differs from an earlier identity, at most three of it spelled out; empty: nothing.
  std::string difference_from(const Identity& earlier) const;

 private:
  Facts facts_;
};

/// Paths of the job's inputs, as they were given.
std::vector<std::string> input_paths(const Identity& identity);

/// facts, then each input's path, time of change and io::file_digest(). Throws Error(kIo).
Identity job_identity(Identity::Facts facts, const std::vector<std::string>& inputs);

}  // namespace tokenmill::jobs
