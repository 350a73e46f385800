/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The functions of the C library for memory and strings that the kernel has as well. Its own header
 * is not included, because it also declares names that modules use, such as index.
 */
#ifndef UWORK_KERNEL_UW_KERNEL_STRING_H
#define UWORK_KERNEL_UW_KERNEL_STRING_H

#if defined(__cplusplus) || defined(_STRING_H)
#include <string.h>
#endif

#ifndef __cplusplus
#include <stddef.h>

/* A program that included <string.h> first may have macros of these names. */
#ifndef _STRING_H
void *memcpy(void *to, const void *from, size_t size);
void *memmove(void *to, const void *from, size_t size);
void *memset(void *to, int value, size_t size);
int memcmp(const void *a, const void *b, size_t size);
void *memchr(const void *from, int value, size_t size);
size_t strlen(const char *text);
char *strcpy(char *to, const char *from);
char *strncpy(char *to, const char *from, size_t size);
char *strcat(char *to, const char *from);
char *strncat(char *to, const char *from, size_t most);
int strcmp(const char *a, const char *b);
int strncmp(const char *a, const char *b, size_t most);
char *strchr(const char *text, int wanted);
char *strrchr(const char *text, int wanted);
char *strstr(const char *text, const char *wanted);
char *strpbrk(const char *text, const char *set);
size_t strspn(const char *text, const char *set);
size_t strcspn(const char *text, const char *set);
#endif
/*
 * In ISO C mode <string.h> does not declare these. The names are in parentheses because it may have
 * macros of these names.
 */
size_t (strnlen)(const char *text, size_t most);
char *(stpcpy)(char *to, const char *from);
int (strcasecmp)(const char *a, const char *b);
int (strncasecmp)(const char *a, const char *b, size_t most);
char *(strsep)(char **text, const char *set);
char *strchrnul(const char *text, int wanted);
int ffs(int word);
#endif

#endif
