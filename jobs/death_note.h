#pragma once
#include <cstdint>
#include <exception>
#include <string>

namespace tokenmill::jobs {

/// While it lives, this process leaves a note in the journal when it dies of its own fault: by a fatal signal (SEGV,
/// BUS, FPE, ILL, ABRT) that it raised itself, or by an exception that nobody catches. A signal from another process,
/// KILL or TERM are not its fault. The note says which row the thread that died worked at alone, if any. What else
/// handles these signals (MPI prints a stack) does so afterwards, and the process ends as it would without this. One
/// per process.
class DeathNote {
 public:
  /// path: of the note, which is made when it is needed; its directory exists.
  explicit DeathNote(const std::string& path);
  ~DeathNote();
  DeathNote(const DeathNote&) = delete;
  DeathNote& operator=(const DeathNote&) = delete;

  /// This process is about to die of this error: a note, unless the environment is at fault (kIo, kMpi). Any thread;
  /// the first note stays.
  static void write(const std::exception& error);
  /// The same into another process's note.
  static void write(const std::string& path, int64_t row, const std::string& cause);

  /// The calling thread works at this row alone, until it is destroyed; when an exception does that, until another one.
  class OneRow {
   public:
    explicit OneRow(int64_t row);
    ~OneRow();
    OneRow(const OneRow&) = delete;
    OneRow& operator=(const OneRow&) = delete;

   private:
    const int exceptions_;
  };

  /// Room for the handlers on the calling thread when its own stack has overflowed.
  class SpareStack {
   public:
    SpareStack();
    ~SpareStack();
    SpareStack(const SpareStack&) = delete;
    SpareStack& operator=(const SpareStack&) = delete;

   private:
    void* memory_;
  };

 private:
  SpareStack stack_;
};

}  // namespace tokenmill::jobs
