#pragma once
/// The part of MPI that tokenmill calls, for a world of one process (TOKENMILL_MPI=off): stands in for the library's <mpi.h>.
/// Collectives copy what their one rank gives; a message to or from another rank is MPI_ERR_RANK, for there is none. Names,
/// arguments and meanings are MPI 3.1's.
#define TOKENMILL_ONE_RANK 1

using MPI_Comm = int;
using MPI_Request = int;  // collectives end as they start: all there is is MPI_REQUEST_NULL
using MPI_Message = int;
using MPI_Datatype = int;  // its bytes
using MPI_Op = int;
using MPI_Info = int;
using MPI_Errhandler = int;
struct MPI_Status {
  int MPI_SOURCE, MPI_TAG, MPI_ERROR;
};

enum : int {
  MPI_SUCCESS = 0,
  MPI_ERR_COMM = 5,
  MPI_ERR_RANK = 6,
  MPI_ERR_ROOT = 8,
  MPI_ERR_OTHER = 16,
  MPI_ERR_IN_STATUS = 18,
  MPI_ERR_PENDING = 19,
};
enum : int { MPI_COMM_NULL = 0, MPI_COMM_WORLD = 1 };
enum : int { MPI_REQUEST_NULL = 0, MPI_MESSAGE_NULL = 0, MPI_INFO_NULL = 0, MPI_ERRORS_RETURN = 1, MPI_MIN = 1 };
enum : int { MPI_BYTE = 1, MPI_CHAR = 1, MPI_INT = 4, MPI_UINT64_T = 8 };
enum : int { MPI_ANY_SOURCE = -1, MPI_ANY_TAG = -1, MPI_COMM_TYPE_SHARED = 1 };
enum : int { MPI_THREAD_SINGLE = 0, MPI_THREAD_MULTIPLE = 3 };
enum : int { MPI_MAX_ERROR_STRING = 128, MPI_MAX_PROCESSOR_NAME = 256, MPI_MAX_LIBRARY_VERSION_STRING = 128 };
inline MPI_Status* const MPI_STATUS_IGNORE = nullptr;

int MPI_Initialized(int* flag);
int MPI_Init_thread(int* argc, char*** argv, int required, int* provided);
int MPI_Query_thread(int* provided);
int MPI_Finalized(int* flag);
int MPI_Finalize();
[[noreturn]] int MPI_Abort(MPI_Comm comm, int code);
int MPI_Error_string(int code, char* text, int* length);
int MPI_Get_processor_name(char* name, int* length);
int MPI_Get_library_version(char* text, int* length);

int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler);
int MPI_Comm_rank(MPI_Comm comm, int* rank);
int MPI_Comm_size(MPI_Comm comm, int* size);
int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* copy);
int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* part);
int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm* part);
int MPI_Comm_free(MPI_Comm* comm);

int MPI_Bcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm);
int MPI_Ibcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request);
int MPI_Iallreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                   MPI_Request* request);
int MPI_Iallgather(const void* in, int in_count, MPI_Datatype in_type, void* out, int out_count, MPI_Datatype out_type,
                   MPI_Comm comm, MPI_Request* request);
int MPI_Iallgatherv(const void* in, int in_count, MPI_Datatype in_type, void* out, const int* out_counts,
                    const int* out_offsets, MPI_Datatype out_type, MPI_Comm comm, MPI_Request* request);

int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request);
int MPI_Irecv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request* request);
/// Finds nothing: nobody sends.
int MPI_Improbe(int from, int tag, MPI_Comm comm, int* flag, MPI_Message* message, MPI_Status* status);
int MPI_Mrecv(void* data, int count, MPI_Datatype type, MPI_Message* message, MPI_Status* status);
int MPI_Get_count(const MPI_Status* status, MPI_Datatype type, int* count);
int MPI_Test(MPI_Request* request, int* done, MPI_Status* status);
int MPI_Testall(int count, MPI_Request* requests, int* done, MPI_Status* statuses);
int MPI_Cancel(MPI_Request* request);
int MPI_Request_free(MPI_Request* request);
