// is_pair_worth_it: launches the kernels of this bundle. C and C++; needs the CUDA driver API.
//
//   is_pair_worth_it_launcher* launcher;
//   is_pair_worth_it_get("build", &launcher);                        // once per device; loads build/<kernel>.<target>.cubin
//   is_pair_worth_it_arguments arguments = is_pair_worth_it_defaults();    // the problem's own values
//   is_pair_worth_it_buffers buffers = { ... };                      // device addresses
//   is_pair_worth_it_run(launcher, &arguments, &buffers, NULL, NULL, 0, stream);
//
// Every call returns a status and none throws. Calls on one launcher may come from several threads. A CUDA context must
// be current, the same one as when the launcher was made. A run allocates nothing and waits for nothing, so that it can
// be captured into a CUDA graph; the arguments and addresses are those of the capture.
#ifndef IS_PAIR_WORTH_IT_H
#define IS_PAIR_WORTH_IT_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum is_pair_worth_it_status {
  IS_PAIR_WORTH_IT_OK = 0,
  IS_PAIR_WORTH_IT_INVALID_ARGUMENT = 1,     // an argument or a pointer that no kernel can take
  IS_PAIR_WORTH_IT_NO_CONTEXT = 2,           // no CUDA context is current on this thread
  IS_PAIR_WORTH_IT_IMAGE_MISSING = 3,        // a cubin that this device needs is not in the folder
  IS_PAIR_WORTH_IT_NO_RUNG = 4,              // no entry of the ladder runs here with these arguments
  IS_PAIR_WORTH_IT_RUNG_UNAVAILABLE = 5,     // the rung that was asked for does not run here with these arguments
  IS_PAIR_WORTH_IT_WORKSPACE_TOO_SMALL = 6,  // see is_pair_worth_it_workspace_bytes
  IS_PAIR_WORTH_IT_OUT_OF_MEMORY = 7,        // host memory
  IS_PAIR_WORTH_IT_DRIVER_ERROR = 8,         // the CUDA driver refused a call
  IS_PAIR_WORTH_IT_BAD_RUNTIME_FILE = 9      // runtime.json is there and does not say what is switched off
} is_pair_worth_it_status;

// The run-time arguments. Extents and strides count elements.
typedef struct is_pair_worth_it_arguments {
  int64_t m;  // at least 0
  int64_t n;  // at least 0
  int64_t k;  // at least 0
  int64_t batch;  // at least 0
  int64_t lda;  // at least 1
  int64_t batch_stride_a;  // at least 0
  int64_t ldb;  // at least 1
  int64_t batch_stride_b;  // at least 0
  int64_t ldd;  // at least 1
  int64_t batch_stride_d;  // at least 0
  float alpha;
  float beta;
} is_pair_worth_it_arguments;

// Device addresses. None may be null unless there is nothing to launch; one whose extent along K is 0 is not read, so
// any address that is aligned to 16 will do.
typedef struct is_pair_worth_it_buffers {
  const void* A;  // bfloat16, read
  const void* B;  // bfloat16, read
  void* D;  // bfloat16, written
} is_pair_worth_it_buffers;

typedef struct is_pair_worth_it_options {
  int sm_budget;     // SMs that the launch may fill; 0: all
  const char* rung;  // a rung of the ladder by name; null: the first that runs
} is_pair_worth_it_options;

typedef struct is_pair_worth_it_launcher is_pair_worth_it_launcher;

// The problem's own arguments.
is_pair_worth_it_arguments is_pair_worth_it_defaults(void);

// A launcher for the current context, with the images of `image_folder`. The caller destroys it. What runtime.json in
// the folder above switches off on this machine is no rung of the ladder; see launcher/runtime_file.h.
is_pair_worth_it_status is_pair_worth_it_create(const char* image_folder, is_pair_worth_it_launcher** launcher);
void is_pair_worth_it_destroy(is_pair_worth_it_launcher* launcher);

// The same, made once per context and shared by every caller of the process; never destroyed.
is_pair_worth_it_status is_pair_worth_it_get(const char* image_folder, is_pair_worth_it_launcher** launcher);

// Launches on `stream`. The workspace is device memory, aligned to 256, of is_pair_worth_it_workspace_bytes bytes, which no
// other launch uses at the same time; null where that is 0. `options` may be null. Extents of 0 launch nothing.
is_pair_worth_it_status is_pair_worth_it_run(const is_pair_worth_it_launcher* launcher, const is_pair_worth_it_arguments* arguments,
    const is_pair_worth_it_buffers* buffers, const is_pair_worth_it_options* options, void* workspace, size_t workspace_bytes,
    CUstream stream);

// The rung that is_pair_worth_it_run takes for the same arguments, and the workspace it needs.
is_pair_worth_it_status is_pair_worth_it_pick(const is_pair_worth_it_launcher* launcher, const is_pair_worth_it_arguments* arguments,
    const is_pair_worth_it_buffers* buffers, const is_pair_worth_it_options* options, const char** rung);
is_pair_worth_it_status is_pair_worth_it_workspace_bytes(const is_pair_worth_it_launcher* launcher, const is_pair_worth_it_arguments* arguments,
    const is_pair_worth_it_buffers* buffers, const is_pair_worth_it_options* options, size_t* bytes);

// One line about what is_pair_worth_it_run does for the same arguments: the rung, its kernels with schedule, cluster,
// image and residency, and why each rung before it does not run. Cut to `text_bytes`.
is_pair_worth_it_status is_pair_worth_it_describe(const is_pair_worth_it_launcher* launcher, const is_pair_worth_it_arguments* arguments,
    const is_pair_worth_it_buffers* buffers, const is_pair_worth_it_options* options, char* text, size_t text_bytes);

// Once for each new workspace, before its first run: zeroes what the kernels expect zero and leave zero.
is_pair_worth_it_status is_pair_worth_it_prepare_workspace(const is_pair_worth_it_launcher* launcher, const is_pair_worth_it_arguments* arguments,
    const is_pair_worth_it_buffers* buffers, const is_pair_worth_it_options* options, void* workspace, size_t workspace_bytes,
    CUstream stream);

// Clusters of a kernel that this device holds at once; 0 where no image of it loads or not even one fits.
is_pair_worth_it_status is_pair_worth_it_residency(const is_pair_worth_it_launcher* launcher, const char* kernel,
    int* max_active_clusters);

// The ladder, best first.
int is_pair_worth_it_rung_count(void);
const char* is_pair_worth_it_rung(int index);

const char* is_pair_worth_it_status_name(is_pair_worth_it_status status);
const char* is_pair_worth_it_last_message(void);  // of the calling thread's last call that failed

#ifdef __cplusplus
}
#endif

#endif  // IS_PAIR_WORTH_IT_H
