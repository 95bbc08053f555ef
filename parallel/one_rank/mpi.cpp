#include "parallel/one_rank/mpi.h"

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstring>

namespace {

std::atomic<bool> has_begun = false, has_ended = false;

int put(char* text, int* length, const char* words) {
  std::strcpy(text, words);
  *length = static_cast<int>(std::strlen(words));
  return MPI_SUCCESS;
}

/// Of a collective over one rank, all of what it gives arrives.
int copy(const void* in, void* out, int count, MPI_Datatype type, MPI_Comm comm, MPI_Request* request) {
  if (comm == MPI_COMM_NULL) return MPI_ERR_COMM;
  if (out != in && count > 0) std::memcpy(out, in, static_cast<size_t>(count) * static_cast<size_t>(type));
  *request = MPI_REQUEST_NULL;
  return MPI_SUCCESS;
}

int duplicate(MPI_Comm comm, MPI_Comm* copy) {
  *copy = comm;
  return comm == MPI_COMM_NULL ? MPI_ERR_COMM : MPI_SUCCESS;
}

}  // namespace

int MPI_Initialized(int* flag) {
  *flag = has_begun;
  return MPI_SUCCESS;
}
int MPI_Init_thread(int*, char***, int required, int* provided) {
  if (has_begun.exchange(true)) return MPI_ERR_OTHER;
  *provided = required;
  return MPI_SUCCESS;
}
int MPI_Query_thread(int* provided) {
  *provided = MPI_THREAD_MULTIPLE;
  return MPI_SUCCESS;
}
int MPI_Finalized(int* flag) {
  *flag = has_ended;
  return MPI_SUCCESS;
}
int MPI_Finalize() {
  has_ended = true;
  return MPI_SUCCESS;
}
int MPI_Abort(MPI_Comm, int code) { _exit(code); }

int MPI_Error_string(int code, char* text, int* length) {
  switch (code) {
    case MPI_ERR_COMM: return put(text, length, "MPI_ERR_COMM: not a communicator");
    case MPI_ERR_RANK: return put(text, length, "MPI_ERR_RANK: there is no other rank (built with TOKENMILL_MPI=off)");
    case MPI_ERR_ROOT: return put(text, length, "MPI_ERR_ROOT: the only rank is 0 (built with TOKENMILL_MPI=off)");
    case MPI_ERR_OTHER: return put(text, length, "MPI_ERR_OTHER: called twice or out of order");
    default: return MPI_ERR_OTHER;
  }
}
int MPI_Get_processor_name(char* name, int* length) {
  if (gethostname(name, MPI_MAX_PROCESSOR_NAME) != 0) return MPI_ERR_OTHER;
  name[MPI_MAX_PROCESSOR_NAME - 1] = '\0';
  *length = static_cast<int>(std::strlen(name));
  return MPI_SUCCESS;
}
int MPI_Get_library_version(char* text, int* length) { return put(text, length, "no MPI (one rank)"); }

int MPI_Comm_set_errhandler(MPI_Comm, MPI_Errhandler) { return MPI_SUCCESS; }
int MPI_Comm_rank(MPI_Comm comm, int* rank) {
  *rank = 0;
  return comm == MPI_COMM_NULL ? MPI_ERR_COMM : MPI_SUCCESS;
}
int MPI_Comm_size(MPI_Comm comm, int* size) {
  *size = 1;
  return comm == MPI_COMM_NULL ? MPI_ERR_COMM : MPI_SUCCESS;
}
int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* copy) { return duplicate(comm, copy); }
int MPI_Comm_split(MPI_Comm comm, int, int, MPI_Comm* part) { return duplicate(comm, part); }
int MPI_Comm_split_type(MPI_Comm comm, int, int, MPI_Info, MPI_Comm* part) { return duplicate(comm, part); }
int MPI_Comm_free(MPI_Comm* comm) {
  *comm = MPI_COMM_NULL;
  return MPI_SUCCESS;
}

int MPI_Bcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  MPI_Request request = MPI_REQUEST_NULL;
  return MPI_Ibcast(data, count, type, root, comm, &request);
}
int MPI_Ibcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request) {
  return root == 0 ? copy(data, data, count, type, comm, request) : MPI_ERR_ROOT;
}
int MPI_Iallreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op, MPI_Comm comm,
                   MPI_Request* request) {
  return copy(in, out, count, type, comm, request);
}
int MPI_Iallgather(const void* in, int in_count, MPI_Datatype in_type, void* out, int, MPI_Datatype, MPI_Comm comm,
                   MPI_Request* request) {
  return copy(in, out, in_count, in_type, comm, request);
}
int MPI_Iallgatherv(const void* in, int in_count, MPI_Datatype in_type, void* out, const int*, const int* out_offsets,
                    MPI_Datatype out_type, MPI_Comm comm, MPI_Request* request) {
  return copy(in, static_cast<char*>(out) + static_cast<ptrdiff_t>(out_offsets[0]) * out_type, in_count, in_type, comm,
              request);
}

int MPI_Isend(const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*) { return MPI_ERR_RANK; }
int MPI_Irecv(void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*) { return MPI_ERR_RANK; }
int MPI_Improbe(int from, int, MPI_Comm, int* flag, MPI_Message*, MPI_Status*) {
  *flag = 0;
  return from == MPI_ANY_SOURCE || from == 0 ? MPI_SUCCESS : MPI_ERR_RANK;
}
int MPI_Mrecv(void*, int, MPI_Datatype, MPI_Message*, MPI_Status*) { return MPI_ERR_RANK; }
int MPI_Get_count(const MPI_Status*, MPI_Datatype, int*) { return MPI_ERR_RANK; }
int MPI_Test(MPI_Request*, int* done, MPI_Status*) {
  *done = 1;
  return MPI_SUCCESS;
}
int MPI_Testall(int, MPI_Request*, int* done, MPI_Status*) {
  *done = 1;
  return MPI_SUCCESS;
}
int MPI_Cancel(MPI_Request*) { return MPI_SUCCESS; }
int MPI_Request_free(MPI_Request*) { return MPI_SUCCESS; }
